"""``koord completion``: scripts with which a shell completes commands and options. They start no Python at TAB."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

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


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "completion",
        help="print the completion script of a shell",
        description="Print a script with which a shell completes commands, options, choices and file names.",
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
    print(shtab.complete(parser, shell=options.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Those of the commands, too."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
