"""Validation as tables: each row names a path and what must hold for the value there.

A table is compiled once. ``spec.rules[].host`` means the host of each rule; a row is checked wherever the holder of its
last step is there, with None for a value that is not. Causes come in the order of the rows, in the real server's words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from koordinator.api.document import Document, same
from koordinator.api.names import NameCheck, label_key
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy import causes as words
from koordinator.cluster.strategy.metadata import validate_label_selector, validate_labels

Rule = Callable[[Any, str], list[Cause]]
"""From a value, None where it is absent, and its path to what is wrong with it."""
Row = tuple[str, Rule]

IMMUTABLE: Final = "field is immutable"
NOT_NEGATIVE: Final = "must be greater than or equal to 0"


class Rules:
    """A compiled table."""

    def __init__(self, *rows: Row) -> None:
        self._rows = tuple((_steps(path), rule) for path, rule in rows)

    def check(self, holder: Any, field: str = "") -> list[Cause]:
        """What is wrong below ``field``, which is the path of ``holder``; empty for a whole object."""
        causes: list[Cause] = []
        for steps, rule in self._rows:
            for value, path in _values(holder, steps, field):
                causes += rule(value, path)
        return causes

    def each(self, items: Iterable[Any] | None, field: str) -> list[Cause]:
        """The same for each item of a list."""
        return [cause for index, item in enumerate(items or ()) for cause in self.check(item, f"{field}[{index}]")]


def _steps(path: str) -> tuple[str, ...]:
    """``spec.rules[].host`` as its steps, of which ``[]`` is one of its own."""
    return tuple(step for part in path.split(".") for step in part.replace("[]", " []").split())


def _values(holder: Any, steps: tuple[str, ...], path: str) -> Iterator[tuple[Any, str]]:
    for position, step in enumerate(steps):
        if step == "[]":
            for index, item in enumerate(holder or ()):
                yield from _values(item, steps[position + 1 :], f"{path}[{index}]")
            return
        if holder is None:
            return
        holder = holder.get(step)
        path = f"{path}.{step}" if path else step
    yield holder, path


# What may be asked of one value.


def required(detail: str = "") -> Rule:
    return lambda value, field: [] if value else [words.required(field, detail)]


def one_of(*allowed: str) -> Rule:
    """Also refuses the empty text, and so an absent value."""
    return lambda value, field: [] if value in allowed else [words.not_supported(field, value or "", allowed)]


def one_of_if_set(*allowed: str) -> Rule:
    return lambda value, field: (
        [] if value is None or value in allowed else [words.not_supported(field, value, allowed)]
    )


def optional(*allowed: str) -> Rule:
    """Nothing, or one of these."""
    return lambda value, field: [words.not_supported(field, value, allowed)] if value and value not in allowed else []


def choice(*allowed: str) -> Rule:
    """Required, and one of these."""
    of = one_of(*allowed)
    return lambda value, field: of(value, field) if value else [words.required(field)]


def name(check: NameCheck) -> Rule:
    """A name of the kind, or nothing."""
    return lambda value, field: [words.invalid(field, value, detail) for detail in check(value)] if value else []


def required_name(check: NameCheck, detail: str = "") -> Rule:
    of = name(check)
    return lambda value, field: of(value, field) if value else [words.required(field, detail)]


def name_or_empty(check: NameCheck) -> Rule:
    """The empty text is checked as any other."""
    return lambda value, field: [words.invalid(field, value or "", detail) for detail in check(value or "")]


def at_least(least: int, detail: str) -> Rule:
    """An absent number is none that is too small."""
    return lambda value, field: [] if value is None or value >= least else [words.invalid(field, value, detail)]


not_negative: Final = at_least(0, NOT_NEGATIVE)
positive: Final = at_least(1, "must be greater than 0")


def between(least: int, most: int) -> Rule:
    detail = f"must be between {least} and {most}, inclusive"
    return lambda value, field: [] if value is None or least <= value <= most else [words.invalid(field, value, detail)]


def port(value: Any, field: str) -> list[Cause]:
    """A port number; an absent one is zero, and zero is none."""
    return between(1, 65535)(value or 0, field)


def longest(limit: int) -> Rule:
    return lambda value, field: [words.too_long(field, limit)] if value and len(value.encode()) > limit else []


def selector(value: Any, field: str) -> list[Cause]:
    return validate_label_selector(value or {}, field)


def labels(value: Any, field: str) -> list[Cause]:
    return validate_labels(value, field)


def qualified(value: Any, field: str) -> list[Cause]:
    """``[prefix/]name``, compared in lower case as annotations are."""
    return name_or_empty(label_key)((value or "").lower(), field)


def all_of(*rules: Rule) -> Rule:
    return lambda value, field: [cause for rule in rules for cause in rule(value, field)]


def items(rule: Rule) -> Rule:
    """The rule for each item of a list."""
    return lambda value, field: [
        cause for index, item in enumerate(value or ()) for cause in rule(item, f"{field}[{index}]")
    ]


# What an update may not change.


def immutable(
    obj: Mapping[str, Any], old: Mapping[str, Any], paths: Sequence[str], texts: Sequence[str] = ()
) -> list[Cause]:
    """One cause for each path whose value differs; for those in ``texts`` an absent value is the empty text."""
    return [
        words.invalid(path, "" if now is None and path in texts else now, IMMUTABLE)
        for path in paths
        for now, before in ((at(obj, path), at(old, path)),)
        if not same(now, before)
    ]


def at(obj: Mapping[str, Any], path: str) -> Any:
    """The value at a path through objects; None where it is not there."""
    value: Any = obj
    for step in path.split("."):
        value = value.get(step) if value is not None else None
    return value


Check = Callable[[Document, Document | None], list[Cause]]
"""From an object and what it replaces, None on creation, to all that is wrong outside of its metadata."""


def checked(rules: Rules, *extra: Check, frozen: Sequence[str] = (), texts: Sequence[str] = ()) -> Check:
    """The rules, further checks, and last what no update may change."""

    def check(obj: Document, old: Document | None) -> list[Cause]:
        causes = rules.check(obj)
        for further in extra:
            causes += further(obj, old)
        return causes if old is None else causes + immutable(obj, old, frozen, texts)

    return check
