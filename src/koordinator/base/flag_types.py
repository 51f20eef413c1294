"""The types of flags: each parses text into a value, and its error message states what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar

from koordinator.base.durations import DurationError, format_duration, parse_duration
from koordinator.base.errors import ConfigurationError
from koordinator.base.feature_gates import FeatureGates, parse_bool, parse_gates
from koordinator.base.listen_address import ListenAddress, parse_listen_address

T = TypeVar("T")
N = TypeVar("N", int, float)


class FlagError(ConfigurationError):
    """An invalid command line; the message names the flag, the value and what is allowed."""


@dataclass(frozen=True, slots=True, eq=False)
class Flag(Generic[T]):
    """One flag; ``values[flag]`` returns its value."""

    name: str
    default: T
    help_text: str
    parse: Callable[[str, str], T]
    placeholder: str
    shown_default: str
    bare: str | None = None
    """The value of the flag if it is given without one; None if it requires a value."""
    short: str = ""


@dataclass(slots=True)
class FlagGroup:
    """Flags under one heading of the help text; created by ``FlagSet.group``."""

    title: str
    _register: Callable[[Flag[Any]], None]
    flags: list[Flag[Any]] = field(default_factory=list)

    def string(
        self, name: str, default: str, help_text: str, *, allowed: Sequence[str] = (), placeholder: str = "string"
    ) -> Flag[str]:
        """Any text, or one of ``allowed``."""

        def parse(flag: str, text: str) -> str:
            if allowed and text not in allowed:
                raise FlagError(flag, text, f"allowed are {', '.join(allowed)}")
            return text

        shown = f'"{default}"' if default else ""
        return self._add(Flag(name, default, help_text, parse, "|".join(allowed) or placeholder, shown))

    def boolean(self, name: str, default: bool, help_text: str, *, short: str = "") -> Flag[bool]:
        """A switch: ``--name``, ``--name=false``."""
        shown = "true" if default else ""
        return self._add(Flag(name, default, help_text, parse_switch, "", shown, bare="true", short=short))

    def integer(
        self,
        name: str,
        default: int,
        help_text: str,
        *,
        minimum: int | None = None,
        maximum: int | None = None,
        short: str = "",
    ) -> Flag[int]:
        """A whole number within bounds, and of 64 bits at most, as in Go: a longer one fits no time."""
        parse = _bounded(_whole_number, "a whole number", minimum, maximum)
        return self._add(Flag(name, default, help_text, parse, "int", str(default), short=short))

    def number(
        self, name: str, default: float, help_text: str, *, minimum: float | None = None, maximum: float | None = None
    ) -> Flag[float]:
        """A number within bounds."""
        parse = _bounded(float, "a number", minimum, maximum)
        return self._add(Flag(name, default, help_text, parse, "float", f"{default:g}"))

    def duration(
        self, name: str, default: timedelta, help_text: str, *, minimum: timedelta | None = None
    ) -> Flag[timedelta]:
        """A Go duration."""

        def parse(flag: str, text: str) -> timedelta:
            try:
                value = parse_duration(text)
            except DurationError as error:
                raise FlagError(flag, text, "write a duration such as 300ms, 15s, 5m or 1h30m") from error
            if minimum is not None and value < minimum:
                raise FlagError(flag, text, f"at least {format_duration(minimum)}")
            return value

        return self._add(Flag(name, default, help_text, parse, "duration", format_duration(default)))

    def strings(
        self, name: str, default: Sequence[str], help_text: str, *, allowed: Sequence[str] = ()
    ) -> Flag[tuple[str, ...]]:
        """A list: ``a,b``."""

        def parse(flag: str, text: str) -> tuple[str, ...]:
            items = tuple(item for item in (part.strip() for part in text.split(",")) if item)
            for item in items:
                if allowed and item not in allowed:
                    raise FlagError(flag, item, f"allowed are {', '.join(allowed)}")
            return items

        return self._add(Flag(name, tuple(default), help_text, parse, "strings", ",".join(default)))

    def mapping(self, name: str, help_text: str) -> Flag[dict[str, str]]:
        """A map: ``a=b,c=d``."""

        def parse(flag: str, text: str) -> dict[str, str]:
            pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
            for key, equals, value in pairs:
                if not equals or not key:
                    raise FlagError(flag, key + equals + value, "write KEY=VALUE pairs with commas between them")
            return {key: value for key, _, value in pairs}

        return self._add(Flag(name, {}, help_text, parse, "key=value,...", ""))

    def switches(self, name: str, help_text: str) -> Flag[dict[str, bool]]:
        """A map of switches: ``a=true,b=false``."""
        return self._add(Flag(name, {}, help_text, lambda flag, text: parse_gates(text, flag), "A=true,B=false", ""))

    def listen_address(self, name: str, default: ListenAddress, help_text: str) -> Flag[ListenAddress]:
        """Where to listen."""
        return self._add(Flag(name, default, help_text, parse_listen_address, "host:port", str(default)))

    def feature_gates(
        self, gates: FeatureGates, name: str = "feature-gates", component: str = "", remark: str = ""
    ) -> Flag[dict[str, bool]]:
        """``--feature-gates``: sets the gates while parsing; ``component`` may stand before their names. ``remark``
        ends the help text."""

        def parse(flag: str, text: str) -> dict[str, bool]:
            values = parse_gates(text, flag, component)
            gates.set(values, flag)
            return values

        description = "A set of key=value pairs that describe feature gates. Options are:\n" + "\n".join(
            [*gates.describe(), *filter(None, [remark])]
        )
        return self._add(Flag(name, {}, description, parse, "A=true,B=false", ""))

    def _add(self, flag: Flag[T]) -> Flag[T]:
        self._register(flag)
        self.flags.append(flag)
        return flag


def parse_switch(flag: str, text: str) -> bool:
    """Go's booleans."""
    return parse_bool(flag, text)


def _whole_number(text: str) -> int:
    value = int(text)
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(text)
    return value


def _bounded(convert: Callable[[str], N], what: str, minimum: N | None, maximum: N | None) -> Callable[[str, str], N]:
    lowest = f", at least {minimum}" if minimum is not None else ""
    highest = f", at most {maximum}" if maximum is not None else ""
    allowed = what + lowest + highest

    def parse(flag: str, text: str) -> N:
        try:
            value = convert(text)
        except ValueError as error:
            raise FlagError(flag, text, allowed) from error
        if (minimum is not None and value < minimum) or (maximum is not None and value > maximum) or value != value:
            raise FlagError(flag, text, allowed)
        return value

    return parse
