"""Flags that are the fields of a dataclass of options: the name, the default, the bounds and the help text of a flag
stand where the option is, once.

    @dataclass(frozen=True, slots=True)
    class KubeletOptions:
        sync_interval: float = seconds("kubelet-sync-interval", 10.0, "How often the kubelet is queried.")

    @dataclass(frozen=True, slots=True)
    class Options:
        node_name: str
        kubelet: KubeletOptions = group("Kubelet", KubeletOptions)

    flags = OptionFlags(Options, flag_set.group)
    options = flags.read(flag_set.parse(arguments), node_name="n")

A field without a flag has its default, or what the caller of ``read`` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from koordinator.base.flag_types import Flag, FlagGroup
from koordinator.base.flags import FlagValues
from koordinator.base.listen_address import ListenAddress

T = TypeVar("T")

_SHORTEST_INTERVAL: Final = 0.1
_FLAG: Final = "flag"
_GROUP: Final = "group"


@dataclass(frozen=True, slots=True)
class _FlagOfField:
    add: Callable[[FlagGroup], Flag[Any]]
    read: Callable[[Any], Any]
    """Makes the option of what was given."""
    title: str
    """The heading in the help text; empty for that of the dataclass."""


def text(
    name: str,
    default: str,
    help_text: str,
    *,
    allowed: Sequence[str] = (),
    placeholder: str = "string",
    under: str = "",
) -> str:
    """Any text, or one of ``allowed``. ``under`` is the heading in the help text, as everywhere here."""
    return _option(
        default, lambda to: to.string(name, default, help_text, allowed=allowed, placeholder=placeholder), under=under
    )


def texts(
    name: str, default: tuple[str, ...], help_text: str, *, allowed: Sequence[str] = (), under: str = ""
) -> tuple[str, ...]:
    """Texts with commas between them, or those of ``allowed``."""
    return _option(default, lambda to: to.strings(name, default, help_text, allowed=allowed), under=under)


def switch(
    name: str, default: bool, help_text: str, *, negated: bool = False, short: str = "", under: str = ""
) -> bool:
    """``negated``: the flag switches the option off. ``short`` is a letter that stands for the name."""
    shown = default is not negated
    return _option(
        default,
        lambda to: to.boolean(name, shown, help_text, short=short),
        lambda given: given is not negated,
        under=under,
    )


def switches(name: str, help_text: str, *, under: str = "") -> Mapping[str, bool]:
    """By name: ``a=true,b=false``. What is not named is not there."""
    flag = _FlagOfField(lambda to: to.switches(name, help_text), lambda given: given, under)
    made: Mapping[str, bool] = field(default_factory=dict, metadata={_FLAG: flag})
    return made


def integer(
    name: str,
    default: int,
    help_text: str,
    *,
    minimum: int | None = None,
    maximum: int | None = None,
    unit: int = 1,
    short: str = "",
    under: str = "",
) -> int:
    """A whole number of ``unit``, in which the default and the bounds are, too."""
    return _option(
        default * unit,
        lambda to: to.integer(name, default, help_text, minimum=minimum, maximum=maximum, short=short),
        lambda given: given * unit,
        under=under,
    )


def number(
    name: str,
    default: float,
    help_text: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    under: str = "",
) -> float:
    """A number with a fraction."""
    return _option(
        default, lambda to: to.number(name, default, help_text, minimum=minimum, maximum=maximum), under=under
    )


def listen_address(name: str, default: ListenAddress, help_text: str, *, under: str = "") -> ListenAddress:
    """Where to listen."""
    return _option(default, lambda to: to.listen_address(name, default, help_text), under=under)


def duration(
    name: str, default: timedelta, help_text: str, *, minimum: timedelta | None = None, under: str = ""
) -> timedelta:
    """A Go duration."""
    return _option(default, lambda to: to.duration(name, default, help_text, minimum=minimum), under=under)


def seconds(name: str, default: float, help_text: str, *, minimum: float | None = None, under: str = "") -> float:
    """A Go duration, in seconds."""
    least = None if minimum is None else timedelta(seconds=minimum)
    return _option(
        default,
        lambda to: to.duration(name, timedelta(seconds=default), help_text, minimum=least),
        timedelta.total_seconds,
        under=under,
    )


def interval(name: str, default: float, help_text: str, *, under: str = "") -> float:
    """The seconds between two rounds of measuring, as a Go duration of 100 ms or more: to measure more often would
    take a core."""
    return seconds(name, default, help_text, minimum=_SHORTEST_INTERVAL, under=under)


def group(title: str, options: Callable[[], T]) -> T:
    """The options of another dataclass, with their flags under a heading of their own."""
    made: T = field(default_factory=options, metadata={_GROUP: title})
    return made


class OptionFlags(Generic[T]):
    """The flags of a dataclass, and of those that it is made of."""

    def __init__(self, options: type[T], group_of: Callable[[str], FlagGroup], title: str = "") -> None:
        """``group_of`` gives the flags under a heading, ``title`` is that of fields that name none."""
        self._options: Callable[..., T] = options
        self._flags: dict[str, tuple[Flag[Any], Callable[[Any], Any]]] = {}
        self._nested: dict[str, OptionFlags[Any]] = {}
        for each in fields(options):  # type: ignore[arg-type]  # it is a dataclass, for which there is no bound
            own: _FlagOfField | None = each.metadata.get(_FLAG)
            if own is not None:
                self._flags[each.name] = own.add(group_of(own.title or title)), own.read
            elif _GROUP in each.metadata:
                self._nested[each.name] = OptionFlags(each.default_factory, group_of, each.metadata[_GROUP])  # type: ignore[arg-type]  # a dataclass

    def read(self, given: FlagValues, **others: Any) -> T:
        """The options that the command line gives, and ``others``."""
        values: Mapping[str, Any] = {name: read(given[flag]) for name, (flag, read) in self._flags.items()}
        return self._options(**values, **{name: flags.read(given) for name, flags in self._nested.items()}, **others)


def _option(
    default: T, add: Callable[[FlagGroup], Flag[Any]], read: Callable[[Any], Any] = lambda given: given, *, under: str
) -> T:
    made: T = field(default=default, metadata={_FLAG: _FlagOfField(add, read, under)})
    return made
