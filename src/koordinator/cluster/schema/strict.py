"""Fields that a built-in kind does not have: what ``fieldValidation=Strict`` refuses and ``Warn`` warns of."""

from __future__ import annotations

from typing import Any

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.table import ObjectType, Shape, Type


def unknown_fields(document: Document, of: ObjectType) -> list[str]:
    """The complaints of the real server's strict decoder, such as ``unknown field "spec.containers[0].imag"``."""
    known = {"apiVersion", "kind"}
    return [
        f'unknown field "{path}"' for path in _object({k: v for k, v in document.items() if k not in known}, of, "")
    ]


def _object(document: Document, of: ObjectType, path: str) -> list[str]:
    unknown: list[str] = []
    for name, value in document.items():
        at = f"{path}.{name}" if path else name
        field = of.fields.get(name)
        if field is None:
            # An embedded object, such as a claim template, names its own kind.
            unknown += [] if name in ("apiVersion", "kind") and "metadata" in of.fields else [at]
        else:
            unknown += _value(value, field.type, at)
    return unknown


def _value(value: Any, of: Type, path: str) -> list[str]:
    if of.shape is Shape.OBJECT and isinstance(value, dict):
        return _object(value, of.members, path)
    if of.shape is Shape.LIST and isinstance(value, list):
        return [text for index, item in enumerate(value) for text in _value(item, of.of, f"{path}[{index}]")]
    if of.shape is Shape.MAP and isinstance(value, dict):
        return [text for key, item in value.items() for text in _value(item, of.of, f"{path}.{key}")]
    return []
