"""Objects as plain JSON documents: for whoever must keep every field, also those that this project does not know."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]
"""One object as decoded from JSON."""


def copied(value: Any) -> Any:
    """A deep copy of a JSON value; ``copy.deepcopy``, which expects cycles and classes, takes several times longer."""
    if type(value) is dict:
        return {name: copied(item) if type(item) in _CONTAINERS else item for name, item in value.items()}
    if type(value) is list:
        return [copied(item) if type(item) in _CONTAINERS else item for item in value]
    return value


_CONTAINERS = (dict, list)
