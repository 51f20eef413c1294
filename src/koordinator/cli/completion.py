"""``koord completion``: scripts with which a shell completes commands, options, kinds and names. At TAB they start a
program for names alone, as kubectl's do: ``koord get KIND -o name``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import shtab

from koordinator.cli.main import make_parser

_EPILOG = """\
examples:
  koord completion bash > ~/.local/share/bash-completion/completions/koord
                                               bash, with the package bash-completion; the folder has to exist
  source <(koord completion bash)              bash, this session only
  koord completion zsh > ~/.zfunc/_koord       zsh, with fpath+=~/.zfunc before compinit in ~/.zshrc
  koord completion fish > ~/.config/fish/completions/koord.fish
"""


_WORDS: Final = """\
pod|pods|po) {names} pods ;;
    node|nodes|no|interference) {names} nodes ;;
    quota|quotas|elasticquota|eq) {names} quotas ;;
    gang|gangs|podgroup|pg) {names} gangs ;;
    reservation|reservations) {names} reservations ;;
    migration|podmigrationjob|pmj) {names} migrations ;;"""
_KINDS: Final = "pod node quota gang reservation interference migration deployment rebalance"
_PREAMBLE: Final = {
    "bash": f"""\
_koord_names() {{
  compgen -W "$(koord get "$1" -o name --request-timeout 2 2>/dev/null)" -- "$2"
}}
_koord_nodes() {{
  _koord_names nodes "$1"
}}
_koord_explained() {{
  case "${{COMP_WORDS[COMP_CWORD-1]}}" in
    {_WORDS.format(names="_koord_names").replace(" ;;", ' "$1" ;;')}
    *) compgen -W "{_KINDS}" -- "$1" ;;
  esac
}}
""",
    "zsh": f"""\
_koord_names() {{
  compadd -- ${{(f)"$(koord get $1 -o name --request-timeout 2 2>/dev/null)"}}
}}
_koord_nodes() {{
  _koord_names nodes
}}
_koord_explained() {{
  case "${{words[CURRENT-1]}}" in
    {_WORDS.format(names="_koord_names")}
    *) compadd -- {_KINDS} ;;
  esac
}}
""",
    "fish": f"""\
function _koord_names
  koord get $argv[1] -o name --request-timeout 2 2>/dev/null
end
function _koord_explained
  switch (commandline -opc)[-1]
    case pod pods po; _koord_names pods
    case node nodes no interference; _koord_names nodes
    case quota quotas elasticquota eq; _koord_names quotas
    case gang gangs podgroup pg; _koord_names gangs
    case reservation reservations; _koord_names reservations
    case migration podmigrationjob pmj; _koord_names migrations
    case '*'; string split ' ' '{_KINDS}'
  end
end
""",
}
_EXPLAINED: Final = {
    "bash": "_koord_explained",
    "zsh": "_koord_explained",
    "fish": "(_koord_explained)",
    "preamble": _PREAMBLE,
}
_NODES: Final = {"bash": "_koord_nodes", "zsh": "_koord_nodes", "fish": "(_koord_names nodes)", "preamble": _PREAMBLE}
"""How shtab is told what to call, by shell."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "completion",
        help="print the completion script of a shell",
        description="Print a script with which a shell completes commands, options, choices, file names, kinds, and "
        "names of objects, for which it queries the cluster as koord get does.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print it."""
    parser = make_parser()
    for action in _actions(parser):
        if action.type is Path:
            action.complete = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE  # type: ignore[attr-defined]
        elif action.dest == "what" and not action.choices:
            action.complete = _EXPLAINED  # type: ignore[attr-defined]
        elif action.metavar == "NODE":
            action.complete = _NODES  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell=options.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Those of the commands, too."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
