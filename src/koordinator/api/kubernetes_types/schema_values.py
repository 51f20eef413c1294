"""The values in the schema of a CustomResourceDefinition that Go's decoder refuses by their types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from koordinator.api.document import Document

Refuse = Callable[[Any, str, str, str], Exception]
"""From a value, the Go struct that holds it, its path and the type that was expected to the error."""

_STRUCT: Final = "JSONSchemaProps."
_SCHEMA: Final = "v1.JSONSchemaProps"
_MAPS: Final = ("properties", "patternProperties", "definitions")
_LISTS: Final = ("allOf", "anyOf", "oneOf")
_SCALARS: Final[dict[str, tuple[type | tuple[type, ...], str]]] = {
    **dict.fromkeys(
        (
            "id", "$schema", "$ref", "description", "type", "format", "title", "pattern", "x-kubernetes-list-type",
            "x-kubernetes-map-type",
        ),
        (str, "string"),
    ),
    **dict.fromkeys(("maximum", "minimum", "multipleOf"), ((int, float), "float64")),
    **dict.fromkeys(
        ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"), (int, "int64")
    ),
    **dict.fromkeys(
        (
            "exclusiveMaximum", "exclusiveMinimum", "uniqueItems", "nullable", "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string",
        ),
        (bool, "bool"),
    ),
}  # fmt: skip

_OTHERS: Final = (
    "additionalItems", "additionalProperties", "default", "dependencies", "enum", "example", "externalDocs", "items",
    "not", "required", "x-kubernetes-list-map-keys", "x-kubernetes-validations",
)  # fmt: skip
MEMBERS: Final = frozenset((*_MAPS, *_LISTS, *_SCALARS, *_OTHERS))
"""All that a schema may say."""


def unknown_members(schema: Any, path: str) -> Iterator[tuple[Document, str, str]]:
    """(holder, name, path) of what is none of its members; not below ``items`` and the like, where Go does not look
    for it either, since their types read themselves."""
    if not isinstance(schema, dict):
        return
    for key, member in schema.items():
        at = f"{path}.{key}"
        if key not in MEMBERS:
            yield schema, key, at
        elif key in _MAPS and isinstance(member, dict):
            for name, inner in member.items():
                yield from unknown_members(inner, f"{at}.{name}")
        elif key in _LISTS and isinstance(member, list):
            for index, inner in enumerate(member):
                yield from unknown_members(inner, f"{at}[{index}]")
        elif key == "not":
            yield from unknown_members(member, at)


def check_schema(value: Any, struct: str, path: str, refuse: Refuse) -> Any:
    """The schema, in which null stands for nothing, in place; raises what ``refuse`` makes of a value that is wrong."""
    if not isinstance(value, dict):
        raise refuse(value, struct, path, _SCHEMA)
    for key, member in list(value.items()):
        if member is None:
            if key not in ("default", "example"):
                del value[key]
            continue
        _member(value, key, member, f"{path}.{key}", refuse)
    return value


def _member(schema: Document, key: str, member: Any, path: str, refuse: Refuse) -> None:
    if key in _MAPS:
        if not isinstance(member, dict):
            raise refuse(member, _STRUCT, path, f"map[string]{_SCHEMA}")
        for name, inner in member.items():
            member[name] = check_schema({} if inner is None else inner, _STRUCT, path, refuse)
    elif key in _LISTS:
        if not isinstance(member, list):
            raise refuse(member, _STRUCT, path, f"[]{_SCHEMA}")
        schema[key] = [check_schema({} if inner is None else inner, _STRUCT, path, refuse) for inner in member]
    elif key == "not" or (key in ("items", "additionalProperties") and isinstance(member, dict)):
        check_schema(member, _STRUCT, path, refuse)
    elif key in _SCALARS:
        of, name = _SCALARS[key]
        if not isinstance(member, of) or (isinstance(member, bool) and of is not bool):
            raise refuse(member, _STRUCT, path, name)
