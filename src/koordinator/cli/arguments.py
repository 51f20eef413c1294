"""The parser of each ``koord`` command: flags are taken as they are written, and a mistyped word is answered by the
one that was meant.

argparse takes any beginning of a flag for the flag, so that a mistyped ``--node 3`` would start three nodes.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from koordinator.base.spelling import did_you_mean
from koordinator.cli.data_folder import default_data_folder


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of a flag that takes whole numbers from ``least`` on."""

    def parsed(text: str) -> int:
        found = int(text) if re.fullmatch(r"-?\d+", text) else None
        if found is None or found < least or (most is not None and found > most):
            allowed = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise argparse.ArgumentTypeError(f"{text!r}: a whole number {allowed} is needed")
        return found

    return parsed


def add_data_folder(parser: argparse.ArgumentParser) -> None:
    """``--data``, for commands about the local cluster alone."""
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help=f"the folder of the koord up (default: that of KUBECONFIG's cluster, else {default_data_folder()})",
    )


class CommandParser(argparse.ArgumentParser):
    """A parser without abbreviations whose errors say what was meant. Its subparsers are of the same class.

    Words that are no flags may stand among the flags, as with kubectl: ``explain pod -n shop web``.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        super().__init__(*arguments, **options)

    def parse_known_args(  # type: ignore[override]  # Its overloads differ in the type of a namespace alone.
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As argparse's, but what is left over is an error here, where the flags that may be meant are known."""
        words = sys.argv[1:] if args is None else args
        self._check_first(words)
        found, left = super().parse_known_args(words, namespace)
        if left:
            several = self._positional_list()
            if several is None or any(word.startswith("-") for word in left):
                self.error(f"unrecognized arguments: {' '.join(left)}{self._hint_for(left)}")
            setattr(found, several.dest, [*getattr(found, several.dest), *left])
        return found, []

    def _check_first(self, words: Sequence[str]) -> None:
        """argparse would rather complain of a missing command than of ``koord --verison``."""
        if words and re.match(r"--\w", words[0]) and words[0].partition("=")[0] not in self._option_string_actions:
            self.error(f"unrecognized arguments: {words[0]}{self._hint_for(words[:1])}")

    def _positional_list(self) -> argparse.Action | None:
        """The positional argument that takes any number of words, if there is one."""
        takers = [each for each in self._get_positional_actions() if each.nargs in ("*", "+")]
        return takers[0] if len(takers) == 1 else None

    def _hint_for(self, left: Sequence[str]) -> str:
        flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
        hints = (did_you_mean(word.partition("=")[0], flags) for word in left if word.startswith("--"))
        return next(filter(None, hints), "")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            hint = did_you_mean(str(value), map(str, action.choices or ()))
            if not hint:
                raise
            said = re.sub(r" \(choose from .*", "", error.message, flags=re.DOTALL)
            raise argparse.ArgumentError(action, f"{said}{hint}") from error
