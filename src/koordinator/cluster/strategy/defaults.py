"""Applies the defaults of Kubernetes' types wherever the types occur: a container is one in a pod and in a job.

Each family of kinds registers what one type's defaults are; the walk finds the places from the table of types. Parents
come before what they hold, as in the real server's generated defaulters.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.table import ObjectType, Shape, Type

TypeDefaults = Callable[[Document], None]

_REGISTERED: Final[dict[str, TypeDefaults]] = {}


def defaults_of(type_name: str) -> Callable[[TypeDefaults], TypeDefaults]:
    """Register the defaults of one type, named as in the table: ``io.k8s.api.core.v1.Container``."""

    def register(function: TypeDefaults) -> TypeDefaults:
        assert type_name not in _REGISTERED
        _REGISTERED[type_name] = function
        return function

    return register


def default_each(obj: Document, name: str, value: Any) -> None:
    """Set a field that is absent or zero."""
    if not obj.get(name):
        obj[name] = value


def apply_defaults(document: Document, of: ObjectType) -> None:
    """Fill in the defaults of a canonical document, in place."""
    defaults = _REGISTERED.get(of.name)
    if defaults is not None:
        defaults(document)
    for name, type_ in _places(of):
        value = document.get(name)
        if value is not None:
            _descend(value, type_)


def _descend(value: Any, type_: Type) -> None:
    if type_.shape is Shape.OBJECT:
        apply_defaults(value, type_.members)
    elif type_.shape is Shape.LIST:
        for item in value:
            _descend(item, type_.of)
    elif type_.shape is Shape.MAP:
        for item in value.values():
            _descend(item, type_.of)


@cache
def _places(of: ObjectType) -> tuple[tuple[str, Type], ...]:
    """The fields below which something has defaults; the others are not walked."""
    return tuple((field.name, field.type) for field in of.fields.values() if _reaches(field.type, frozenset({of.name})))


def _reaches(type_: Type, seen: frozenset[str]) -> bool:
    while type_.element is not None:
        type_ = type_.element
    if type_.shape is not Shape.OBJECT or type_.name in seen:
        return False
    if type_.name in _REGISTERED:
        return True
    inner = seen | {type_.name}
    return any(_reaches(field.type, inner) for field in type_.members.fields.values())
