"""Two responses to one case, place by place. Amounts are compared by what they come to, however they are written."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any, Final

from koordinator.api.annotations import QUOTA_TOTAL_RESOURCE, QUOTA_UNSCHEDULABLE_RESOURCE
from tests.real.overcommit.amounts import amount
from tests.real.overcommit.differences import CHANCES, INTENDED

_AMOUNTS: Final = frozenset(
    {
        *("allocatable", "capacity", "available", "min", "max", "resources"),
        *(QUOTA_TOTAL_RESOURCE, QUOTA_UNSCHEDULABLE_RESOURCE),
    }
)
"""Members of which the texts, and those of what is in them, are amounts."""


def differing(ours: Any, theirs: Any) -> dict[str, tuple[str, str]]:
    """Place -> our value and theirs, where they are not the same."""
    one, other = dict(_leaves(ours, ())), dict(_leaves(theirs, ()))
    absent = "absent"
    return {
        " ".join(place): (one.get(place, absent), other.get(place, absent))
        for place in sorted(one.keys() | other.keys())
        if one.get(place, absent) != other.get(place, absent)
    }


def unexpected(found: dict[str, tuple[str, str]], intended: tuple[str, ...]) -> list[str]:
    """What is wrong about the differences of a case, in words."""
    return unintended(found, intended) + [
        f"no difference is left by which {INTENDED[name].reason}"
        for name in intended
        if not any(INTENDED[name].covers(place, *values) for place, values in found.items())
    ]


def unintended(found: dict[str, tuple[str, str]], intended: Collection[str]) -> list[str]:
    """The differences that are none of the intended ones, in words."""
    return [
        f"{place}: {ours} here, {theirs} there"
        for place, (ours, theirs) in found.items()
        if not any((INTENDED | CHANCES)[name].covers(place, ours, theirs) for name in intended)
    ]


def _leaves(value: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    document = _document(value) if isinstance(value, str) else value
    # No annotations and an empty set of them are the same; not so what a strategy says.
    if isinstance(document, dict) and (document or len(place) < 2):
        for key, part in document.items():
            yield from _leaves(part, (*place, key))
    elif isinstance(value, str) and not _AMOUNTS.isdisjoint(place):
        yield place, _written_anyhow(value)
    else:
        yield place, json.dumps(value)


def _written_anyhow(text: str) -> str:
    try:
        return str(amount(text))
    except ValueError:
        return text


def _document(text: str) -> dict[str, Any] | None:
    """What an annotation says, if it is JSON."""
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
