"""Objects as plain JSON documents: for code that must keep every field, also those that this project does not know."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

Document = dict[str, Any]
"""One object as decoded from JSON."""


def copied(value: Any) -> Any:
    """A deep copy of a JSON value; ``copy.deepcopy``, which expects cycles and classes, takes several times longer."""
    if type(value) is dict:
        return {name: copied(item) if type(item) in _CONTAINERS else item for name, item in value.items()}
    if type(value) is list:
        return [copied(item) if type(item) in _CONTAINERS else item for item in value]
    return value


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, where 1, 1.0 and true are three things: Python takes them for one."""
    # What Python distinguishes differs; what has the same text in JSON does not. Little else is left to walk through.
    if one is other:
        return True
    if one != other:
        return False
    if not isinstance(one, _CONTAINERS):
        return _number_type(one) is _number_type(other)
    try:
        return _encode(one) == _encode(other) or _walked(one, other)
    except TypeError:
        # There is more in it than JSON has, such as quantities that are still to be written.
        return _walked(one, other)


def _walked(one: Any, other: Any) -> bool:
    """For two that Python calls equal: only numbers can still differ."""
    if isinstance(one, dict):
        return all(_walked(item, other[name]) for name, item in one.items())
    if isinstance(one, list):
        return all(map(_walked, one, other))
    return _number_type(one) is _number_type(other)


def _number_type(value: Any) -> type | None:
    return next((kind for kind in (bool, int, float) if isinstance(value, kind)), None)


_encode = msgspec.json.Encoder().encode
_CONTAINERS = (dict, list)


# Members of an object that have one name: the last one counts.


class _Members(dict[str, Any]):
    """An object with the names that are in it more than once."""

    def __init__(self, members: list[tuple[str, Any]]) -> None:
        super().__init__(members)
        self.repeated = repeated_names(name for name, _ in members)


def repeated_names(names: Iterable[str]) -> list[str]:
    """Those that are there more than once, in their order; in linear time, since a body may have very many."""
    return [name for name, times in Counter(names).items() if times > 1]


def repeated_fields(text: bytes, document: Any) -> list[str]:
    """The paths of the members of a valid JSON ``text`` that are in their object twice, such as ``spec.nodeName``;
    ``document`` is what it says."""
    # Most clients send what we would write, and then there is nothing to look for.
    if _encode(document) == text.strip():
        return []
    found: list[_Members] = []

    def hook(members: list[tuple[str, Any]]) -> Any:
        names = dict(members)
        if len(names) == len(members):
            return names
        found.append(_Members(members))
        return found[-1]

    try:
        whole = json.loads(text, object_pairs_hook=hook)
    except (ValueError, RecursionError):
        return []
    return list(_repeated(whole, "")) if found else []


def _repeated(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value, _Members):
            yield from (f"{path}.{name}".lstrip(".") for name in value.repeated)
        for name, member in value.items():
            yield from _repeated(member, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _repeated(item, f"{path}[{index}]")
