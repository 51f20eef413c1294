"""``kubectl_complete-koord``: what kubectl asks at TAB after ``kubectl koord …``; one word a line, and a directive of
the library that kubectl is made with. Found out from the same parsers as the scripts of ``koord completion``."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from koordinator.cli.explain_target import KINDS, REBALANCE, WORKLOADS
from koordinator.cli.main import main as koord
from koordinator.cli.main import make_parser

_NO_FILES: Final = ":4"
_FILES: Final = ":0"
"""The directives ShellCompDirectiveNoFileComp and ShellCompDirectiveDefault."""
_LISTS: Final = {
    "pod": "pods",
    "node": "nodes",
    "interference": "nodes",
    "quota": "quotas",
    "gang": "gangs",
    "reservation": "reservations",
    "migration": "migrations",
}
"""A kind that is explained -> the list that has its names."""
_SECONDS: Final = 2
Names = Callable[[str], Sequence[str]]
"""From a list of ``koord get`` to the names in it."""


def main() -> int:
    """Print what may stand in place of the last word; the command line comes as arguments."""
    for line in completed(sys.argv[1:], names_of):
        print(line)
    return 0


def completed(words: Sequence[str], names: Names) -> list[str]:
    """The candidates for the last of ``words``, and the directive."""
    *before, begun = words or [""]
    parser, left = _parser_of(before)
    flags = {flag: action for action in parser._actions for flag in action.option_strings}
    if begun.startswith("-"):
        found: Iterable[str] = flags
    elif left and (action := flags.get(left[-1])) is not None and action.nargs != 0:
        if action.choices is None:
            return [_FILES]
        found = map(str, action.choices)
    else:
        found = _words(parser, [word for word in left if not word.startswith("-")], names)
    return [*sorted(each for each in found if each.startswith(begun)), _NO_FILES]


def _parser_of(words: Sequence[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser of the innermost command that is named, and the words after it."""
    parser, left = make_parser(words[:1]), list(words)
    while left and (commands := _commands(parser)) is not None and left[0] in commands:
        parser = commands[left.pop(0)]
    return parser, left


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser] | None:
    actions = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    found = next(actions, None)
    return dict(found.choices) if found is not None else None


def _words(parser: argparse.ArgumentParser, given: Sequence[str], names: Names) -> Iterable[str]:
    """What may stand where a word that is no flag comes next."""
    commands = _commands(parser)
    if commands is not None:
        return commands
    positional = parser._get_positional_actions()
    if not positional:
        return ()
    action = positional[min(len(given), len(positional) - 1)]
    if action.choices is not None:
        return map(str, action.choices)
    if action.metavar == "NODE":
        return names("nodes")
    if action.metavar == "POD":
        return names("pods")
    if parser.prog.endswith(" explain"):
        return _explained(given, names)
    return ()


def _explained(given: Sequence[str], names: Names) -> Iterable[str]:
    if not given:
        return [*dict.fromkeys(KINDS.values()), *(kind for kind in WORKLOADS if not kind.endswith("s")), REBALANCE]
    kind = KINDS.get(given[0].lower())
    return names(_LISTS[kind]) if kind in _LISTS and len(given) == 1 else ()


def names_of(listing: str) -> Sequence[str]:
    """Those of the cluster that ``koord get`` lists; none where it cannot be queried: TAB is no place for errors."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(io.StringIO()):
        status = koord(["get", listing, "-o", "name", f"--request-timeout={_SECONDS}"])
    return written.getvalue().splitlines() if status == 0 else ()
