"""The steps of a field path, in the form that FieldsV1 writes them.

``f:name`` is a member of an object, ``k:{"name":"x"}`` the item of a list that is told by its keys, ``v:"x"`` the item
of a set, ``i:3`` an index. An element is kept as this text, in its one canonical spelling, so that sets of fields are
plain documents that need no translation on their way from and to the wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from koordinator.base.errors import KoordinatorError
from koordinator.cluster.strategy.causes import go_quoted
from koordinator.cluster.structural_schema.failure import go_float, go_json

FIELD: Final = "f:"
_KEY: Final = "k:"
_VALUE: Final = "v:"
_INDEX: Final = "i:"
_REMEMBERED: Final = 1 << 14
_ORDER: Final = {FIELD: 0, _KEY: 1, _VALUE: 2, _INDEX: 3}


class MalformedElement(KoordinatorError):
    """A step of FieldsV1 that is none."""


def key_element(keys: Mapping[str, Any]) -> str:
    """Of a list item, by the values of its keys."""
    try:
        return _key_element(tuple((name, type(keys[name]).__name__, keys[name]) for name in sorted(keys)))
    except TypeError:
        # A client may write a list or an object where the schema wants a scalar; it is refused later.
        return _KEY + go_json(dict(keys))


@lru_cache(_REMEMBERED)
def _key_element(keys: tuple[tuple[str, str, Any], ...]) -> str:
    """The type is there since Python takes 1 and true for the same key of a cache."""
    return _KEY + go_json({name: value for name, _, value in keys})


@lru_cache(_REMEMBERED)
def name_element(key: str, value: str) -> str:
    """Of a list item with one key, which is a text: nearly all are."""
    return _KEY + go_json({key: value})


def value_element(value: Any) -> str:
    """Of an item of a set, which is a scalar."""
    return _value_element(type(value).__name__, value)


@lru_cache(_REMEMBERED)
def _value_element(_: str, value: Any) -> str:
    return _VALUE + go_json(value)


@lru_cache(_REMEMBERED)
def canonical(element: str) -> str | None:
    """The canonical spelling of what a client wrote; None for a kind of step that is not known, which is ignored.

    Raises MalformedElement.
    """
    kind, text = element[:2], element[2:]
    if len(element) < 2 or kind[1] != ":":
        raise MalformedElement(f"missing colon: {element}" if len(element) > 1 else "key must be 2 characters long:")
    if kind == FIELD:
        return element
    if kind == _INDEX:
        try:
            return f"{_INDEX}{int(text)}"
        except ValueError as error:
            raise MalformedElement(f"strconv.Atoi: parsing {go_quoted(text)}: invalid syntax") from error
    if kind not in _ORDER:
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedElement(f"{element}: {error}") from error
    if kind == _KEY and not isinstance(value, dict):
        raise MalformedElement(f"{element}: an object of keys is wanted")
    return kind + go_json(value)


@lru_cache(_REMEMBERED)
def order(element: str) -> tuple[Any, ...]:
    """What elements are sorted by: members, then keyed items, then items of sets, then indexes."""
    kind, text = element[:2], element[2:]
    if kind == FIELD:
        return (0, text)
    if kind == _INDEX:
        return (3, int(text))
    value = msgspec.json.decode(text)
    if kind == _KEY:
        return (1, tuple((name, _rank(member)) for name, member in value.items()))
    return (2, _rank(value))


def _rank(value: Any) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (2, value)
    if isinstance(value, (int, float)):
        return (0, value)
    return (1, value) if isinstance(value, str) else (3, go_json(value))


@lru_cache(_REMEMBERED)
def shown(element: str) -> str:
    """As it stands in the text of a path: ``.name``, ``[name="x"]``, ``[="x"]``, ``[3]``."""
    kind, text = element[:2], element[2:]
    if kind == FIELD:
        return f".{text}"
    if kind == _INDEX:
        return f"[{text}]"
    value = msgspec.json.decode(text)
    if kind == _KEY:
        return f"[{','.join(f'{name}={_shown(member)}' for name, member in value.items())}]"
    return f"[={_shown(value)}]"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return go_quoted(value)
    if isinstance(value, float):
        return go_float(value)
    return go_json(value)


def path_text(path: Iterable[str]) -> str:
    """``.spec.containers[name="main"].image``."""
    return "".join(map(shown, path))
