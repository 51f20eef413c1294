"""Objects as plain JSON documents: for whoever must keep every field, also those that this project does not know."""

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
    """Whether two JSON values are equal, where 1, 1.0 and true are three things: Python takes them for one.

    Quantities may stand in place of their texts.
    """
    # What Python tells apart differs; what has the same text in JSON does not. Little is left to be walked through.
    if one is other:
        return True
    if one != other:
        return False
    return _encode(one) == _encode(other) or _walked(one, other)


def _walked(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        return one.keys() == other.keys() and all(_walked(item, other[name]) for name, item in one.items())
    if type(one) is list:
        return len(one) == len(other) and all(map(_walked, one, other))
    return bool(one == other)


_encode = msgspec.json.Encoder(enc_hook=str).encode
_CONTAINERS = (dict, list)
