"""One schema of a CustomResourceDefinition, read: what every later step needs, under one name each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.string_formats import FORMATS

META_FIELDS: Final = ("apiVersion", "kind", "metadata")


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A schema and those below it. ``None`` is a keyword that is absent."""

    types: tuple[str, ...] = ()
    """One name; integer and string for an int-or-string; none where any type will do."""
    nullable: bool = False
    format: str = ""
    """Without its dashes; empty for one that the real server does not enforce."""
    format_name: str = ""
    """The same as it was written."""
    enum: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str = ""
    min_items: int | None = None
    max_items: int | None = None
    unique_items: bool = False
    min_properties: int | None = None
    max_properties: int | None = None
    required: tuple[str, ...] = ()
    properties: Mapping[str, Node] = field(default_factory=dict)
    items: Node | None = None
    additional: Node | bool | None = None
    all_of: tuple[Node, ...] = ()
    any_of: tuple[Node, ...] = ()
    one_of: tuple[Node, ...] = ()
    negated: Node | None = None
    """``not``."""
    default: Any = None
    preserves_unknown: bool = False
    embedded: bool = False
    list_type: str = ""
    map_type: str = ""
    list_map_keys: tuple[str, ...] = ()
    rules: tuple[Document, ...] = ()
    """x-kubernetes-validations."""

    @property
    def additional_node(self) -> Node | None:
        """What ``additionalProperties`` says of values; None for true and false, too."""
        return self.additional if isinstance(self.additional, Node) else None

    @property
    def junctors(self) -> tuple[Node, ...]:
        """The schemas that say more of the same value."""
        return (*self.all_of, *self.any_of, *self.one_of, *((self.negated,) if self.negated is not None else ()))

    def below(self) -> Iterator[Node]:
        """The schemas of what the value holds."""
        yield from self.properties.values()
        if self.items is not None:
            yield self.items
        if isinstance(self.additional, Node):
            yield self.additional

    def any(self, keyword: str) -> bool:
        """Whether an attribute is set here or anywhere below, junctors included."""
        return bool(getattr(self, keyword)) or any(node.any(keyword) for node in (*self.below(), *self.junctors))


NOTHING: Final = Node(nullable=True)
"""A schema that knows no fields."""


def read(schema: Document) -> Node:
    """A schema whose types ``definition_check`` has found to be in order, or any other, with what it has."""
    return Node(
        types=_types(schema),
        nullable=bool(schema.get("nullable")),
        format=_format(schema),
        format_name=(schema.get("format") or "") if _format(schema) else "",
        enum=tuple(schema.get("enum") or ()),
        minimum=schema.get("minimum"),
        maximum=schema.get("maximum"),
        exclusive_minimum=bool(schema.get("exclusiveMinimum")),
        exclusive_maximum=bool(schema.get("exclusiveMaximum")),
        multiple_of=schema.get("multipleOf"),
        min_length=schema.get("minLength"),
        max_length=schema.get("maxLength"),
        pattern=schema.get("pattern") or "",
        min_items=schema.get("minItems"),
        max_items=schema.get("maxItems"),
        unique_items=bool(schema.get("uniqueItems")),
        min_properties=schema.get("minProperties"),
        max_properties=schema.get("maxProperties"),
        required=tuple(schema.get("required") or ()),
        properties={name: read(part) for name, part in (schema.get("properties") or {}).items()},
        items=_one(schema.get("items")),
        additional=_additional(schema.get("additionalProperties")),
        all_of=_several(schema, "allOf"),
        any_of=_several(schema, "anyOf"),
        one_of=_several(schema, "oneOf"),
        negated=_one(schema.get("not")),
        default=schema.get("default"),
        preserves_unknown=bool(schema.get("x-kubernetes-preserve-unknown-fields")),
        embedded=bool(schema.get("x-kubernetes-embedded-resource")),
        list_type=schema.get("x-kubernetes-list-type") or "",
        map_type=schema.get("x-kubernetes-map-type") or "",
        list_map_keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()),
        rules=tuple(schema.get("x-kubernetes-validations") or ()),
    )


def _types(schema: Document) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return ("integer", "string")
    return (schema["type"],) if schema.get("type") else ()


def _format(schema: Document) -> str:
    name = (schema.get("format") or "").replace("-", "")
    return name if name in FORMATS else ""


def _one(schema: Any) -> Node | None:
    return read(schema) if isinstance(schema, dict) else None


def _additional(schema: Any) -> Node | bool | None:
    return read(schema) if isinstance(schema, dict) else schema


def _several(schema: Document, junctor: str) -> tuple[Node, ...]:
    return tuple(read(part) for part in schema.get(junctor) or ())
