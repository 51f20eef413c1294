"""Objects as plain JSON documents: for code that must keep every field, also those that this project does not know."""

from __future__ import annotations

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
