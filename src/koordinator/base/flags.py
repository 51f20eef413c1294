"""Command lines that are parsed as Go programs parse them, so that the original's command lines work unchanged.

``--flag=value`` and ``--flag value``, one dash or two, ``--switch`` and ``--switch=false``, ``_`` for ``-``; durations,
maps and lists in Go's notation; a help text in groups that shows every default. Each flag is a typed handle, so that
reading its value is checked by the type checker.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar, cast

from koordinator.base.build import version_line
from koordinator.base.errors import ConfigurationError
from koordinator.base.flag_types import Flag, FlagError, FlagGroup, parse_switch
from koordinator.base.spelling import meant

T = TypeVar("T")

_HELP_WIDTH = 100


class FlagValues:
    """The values of a parsed command line."""

    def __init__(self, values: dict[str, Any], arguments: list[str]) -> None:
        self._values = values
        self.arguments = arguments
        """The arguments that are neither a flag nor a flag's value."""

    def __getitem__(self, flag: Flag[T]) -> T:
        return cast("T", self._values.get(flag.name, flag.default))

    def is_set(self, flag: Flag[Any]) -> bool:
        """Return whether the command line sets the flag; it then takes precedence over a configuration file."""
        return flag.name in self._values


class FlagSet:
    """All flags of a program. ``--help`` and ``--version`` always exist."""

    def __init__(self, program: str, description: str, version: str) -> None:
        self._program = program
        self._description = description
        self._version = version
        self._flags: dict[str, Flag[Any]] = {}
        self._groups: list[FlagGroup] = []

    def group(self, title: str) -> FlagGroup:
        """Add a heading to the help text and return its group of flags."""
        group = FlagGroup(title, self.register)
        self._groups.append(group)
        return group

    def register(self, flag: Flag[Any]) -> None:
        """Add a flag; ValueError if its name exists already."""
        for name in filter(None, (flag.name, flag.short)):
            if name in self._flags or name in ("help", "h", "version"):
                raise ValueError(f"flag --{name} exists")
            self._flags[name] = flag

    def parse(self, arguments: Sequence[str]) -> FlagValues:
        """Parse a command line. Raises FlagError; ``--help`` and ``--version`` are not handled here."""
        values: dict[str, Any] = {}
        rest: list[str] = []
        remaining = list(arguments)
        while remaining:
            argument = remaining.pop(0)
            if argument == "--":
                rest += remaining
                break
            if not argument.startswith("-") or argument == "-":
                rest.append(argument)
                continue
            flag, text = self._split(argument)
            if text is None:
                text = flag.bare
            if text is None:
                if not remaining:
                    raise FlagError(f"--{flag.name}", "", f"a value is needed: --{flag.name}={flag.placeholder}")
                text = remaining.pop(0)
            values[flag.name] = _parse(flag, text)
        return FlagValues(values, rest)

    def parse_or_exit(self, arguments: Sequence[str], *, takes_arguments: bool = False) -> FlagValues:
        """Parse a command line; on ``--help``, ``--version`` or an error, print and exit.

        A FlagError exits with status 2 and one line on stderr.
        """
        named = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
        if any(argument in ("-h", "-help", "--help") for argument in named):
            sys.stdout.write(self.help())
            raise SystemExit(0)
        if any(argument in ("-version", "--version", "--version=true") for argument in named):
            sys.stdout.write(f"{version_line(self._program, self._version)}\n")
            raise SystemExit(0)
        try:
            values = self.parse(arguments)
        except ConfigurationError as error:
            self._fail(str(error))
        if values.arguments and not takes_arguments:
            self._fail(f"unknown command {values.arguments[0]!r}: {self._program} takes flags only")
        return values

    def help(self) -> str:
        """The help text."""
        lines = [self._description, "", f"Usage:\n  {self._program} [flags]"]
        own = FlagGroup("Global", self.register)
        own.flags = [
            Flag("help", False, "Show this text.", parse_switch, "", "", bare="true", short="h"),
            Flag("version", False, "Show the version.", parse_switch, "", "", bare="true"),
        ]
        for group in [*self._groups, own]:
            if group.flags:
                lines += ["", f"{group.title} flags:", *(line for flag in group.flags for line in _help_lines(flag))]
        return "\n".join(lines) + "\n"

    def _split(self, argument: str) -> tuple[Flag[Any], str | None]:
        name, equals, text = argument.removeprefix("-").removeprefix("-").partition("=")
        name = name.replace("_", "-")
        flag = self._flags.get(name)
        if flag is None and not argument.startswith("--") and name[:1] in self._flags and not equals:
            # A short flag with its value attached, such as -v4.
            return self._flags[name[:1]], name[1:]
        if flag is None:
            found = meant(name, self._flags)
            hint = f"did you mean --{found}?" if found else f"{self._program} --help lists all flags"
            raise FlagError(f"--{name}", argument, f"there is no such flag; {hint}")
        return flag, text if equals else None

    def _fail(self, message: str) -> NoReturn:
        sys.stderr.write(f"Error: {message}\nRun '{self._program} --help' for usage.\n")
        raise SystemExit(2)


def _parse(flag: Flag[Any], text: str) -> Any:
    try:
        return flag.parse(f"--{flag.name}", text)
    except FlagError:
        raise
    except ConfigurationError as error:
        raise FlagError(error.field, error.value, error.allowed) from error


def _help_lines(flag: Flag[Any]) -> list[str]:
    short = f"-{flag.short}, " if flag.short else "    "
    value = "[=true|false]" if flag.bare else f" {flag.placeholder}"
    default = f" (default {flag.shown_default})" if flag.shown_default else ""
    paragraphs = (flag.help_text + default).split("\n")
    indent = " " * 12
    return [
        f"  {short}--{flag.name}{value}",
        *(
            line
            for text in paragraphs
            for line in textwrap.wrap(text, _HELP_WIDTH, initial_indent=indent, subsequent_indent=indent)
        ),
    ]
