"""The errors and the warnings that the schema of a CustomResourceDefinition has at its creation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from koordinator.api.document import Document, copied
from koordinator.api.kubernetes_types.schema_values import MEMBERS
from koordinator.api.string_formats import FORMATS
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import forbidden, invalid, not_supported, required
from koordinator.cluster.strategy.metadata import MalformedMetadata
from koordinator.cluster.structural_schema.embedded_resource import check, coerce, walker
from koordinator.cluster.structural_schema.explanation import explain
from koordinator.cluster.structural_schema.failure import shown
from koordinator.cluster.structural_schema.node import META_FIELDS, Node, read
from koordinator.cluster.structural_schema.pruning import to_drop
from koordinator.cluster.structural_schema.rule_check import rule_causes, shape_causes
from koordinator.cluster.structural_schema.structure import is_readable, junctors, structure_causes

# Keywords of a schema that do not fit together, whether or not it is structural, in the words of the real server.


_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED: Final = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_LIST_TYPES: Final = ("atomic", "set", "map")
_MAP_TYPES: Final = ("atomic", "granular")


@dataclass(frozen=True, slots=True)
class _Within:
    """What is around a schema."""

    root: bool = False
    metadata: bool = False
    no_defaults: str = ""
    """Where there may be no defaults: ``in top-level metadata``."""


def keyword_causes(schema: Document, path: str) -> list[Cause]:
    """Of a whole schema, whose path in the definition is given."""
    return _node(schema, path, _Within(root=True))


def _node(schema: Any, path: str, within: _Within) -> list[Cause]:
    if not isinstance(schema, dict):
        return []
    causes = _plain(schema, path, within)
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        causes.append(forbidden(f"{path}.uniqueItems", why))
    causes += _below(schema, path, within)
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        causes.append(invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined"))
    causes += _map_type(schema, path) + _list_type(schema, path) + _keys(schema, path)
    return causes + shape_causes(schema, path)


def _plain(schema: Document, path: str, within: _Within) -> list[Cause]:
    causes: list[Cause] = []
    kind = schema.get("type") or ""
    if kind and kind not in _TYPES:
        causes.append(not_supported(f"{path}.type", kind, _TYPES))
    if schema.get("default") is not None and within.no_defaults:
        causes.append(forbidden(f"{path}.default", f"must not be set {within.no_defaults}"))
    causes += [forbidden(f"{path}.{name}", f"{name} is not supported") for name in _UNSUPPORTED if schema.get(name)]
    if kind == "null":
        causes.append(forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative"))
    if isinstance(schema.get("items"), list) and schema["items"]:
        causes.append(forbidden(f"{path}.items", "items must be a schema object and not an array"))
    if within.metadata and schema.get("x-kubernetes-embedded-resource"):
        why = "must not be used inside of resource meta"
        causes.append(forbidden(f"{path}.x-kubernetes-embedded-resource", why))
    return causes


def _below(schema: Document, path: str, within: _Within) -> list[Cause]:
    causes: list[Cause] = []
    inside = replace(within, root=False)
    additional, properties = schema.get("additionalProperties"), schema.get("properties") or {}
    if properties and additional is not None and additional is not True:
        causes.append(
            forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
        )
    of_metadata = replace(inside, no_defaults="inside additionalProperties applying to object metadata")
    causes += _node(additional, f"{path}.additionalProperties", of_metadata if within.metadata else inside)
    whole = within.root or schema.get("x-kubernetes-embedded-resource")
    for name, part in properties.items():
        of = inside
        if whole and name in META_FIELDS:
            no_defaults = f"in top-level {name}" if within.root else inside.no_defaults
            of = replace(inside, metadata=True, no_defaults=no_defaults)
        causes += _node(part, f"{path}.properties[{name}]", of)
    for below, part in junctors(schema):
        causes += _node(part, f"{path}{below}", inside)
    causes += _node(schema.get("not"), f"{path}.not", inside)
    return causes + _node(schema.get("items"), f"{path}.items", inside)


def _map_type(schema: Document, path: str) -> list[Cause]:
    map_type = schema.get("x-kubernetes-map-type")
    if map_type is None:
        return []
    causes = _of_type(schema, path, "object", "x-kubernetes-map-type")
    if map_type not in _MAP_TYPES:
        causes.append(not_supported(f"{path}.x-kubernetes-map-type", map_type, _MAP_TYPES))
    return causes


def _of_type(schema: Document, path: str, wanted: str, keyword: str) -> list[Cause]:
    kind, why = schema.get("type") or "", f"must be {wanted} if {keyword} is specified"
    if kind == wanted:
        return []
    return [invalid(f"{path}.type", kind, why) if kind else required(f"{path}.type", why)]


def _list_type(schema: Document, path: str) -> list[Cause]:
    list_type = schema.get("x-kubernetes-list-type")
    if list_type is None:
        return []
    causes = _of_type(schema, path, "array", "x-kubernetes-list-type")
    items = schema.get("items")
    if not causes and list_type == "set" and isinstance(items, dict):
        causes += _set_items(items, path)
    if list_type not in _LIST_TYPES:
        causes.append(not_supported(f"{path}.x-kubernetes-list-type", list_type, _LIST_TYPES))
    if list_type in ("set", "map") and isinstance(items, dict) and items.get("nullable"):
        why = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        causes.append(forbidden(f"{path}.items.nullable", why))
    return causes


def _set_items(items: Document, path: str) -> list[Cause]:
    why = "must be atomic as item of a list with x-kubernetes-list-type=set"
    list_type = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        return [invalid(f"{path}.items.x-kubernetes-list-type", list_type, why)]
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        return [invalid(f"{path}.items.x-kubernetes-map-type", list_type, why)]
    return []


def _keys(schema: Document, path: str) -> list[Cause]:
    list_type, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or []
    causes: list[Cause] = []
    if keys and list_type != "map":
        at, why = f"{path}.x-kubernetes-list-type", "must be map if x-kubernetes-list-map-keys is non-empty"
        causes.append(required(at, why) if list_type is None else invalid(at, list_type, why))
    if list_type != "map":
        return causes
    if not keys:
        why = "must not be empty if x-kubernetes-list-type is map"
        causes.append(required(f"{path}.x-kubernetes-list-map-keys", why))
    items = schema.get("items")
    if items is None:
        return [*causes, required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")]
    if not isinstance(items, dict):
        return causes
    if items.get("type") != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        return [*causes, invalid(f"{path}.items.type", items.get("type") or "", why)]
    for index, key in enumerate(keys):
        causes += _key(items, key, keys, index, path)
    return causes


def _key(items: Document, key: str, keys: list[str], index: int, path: str) -> list[Cause]:
    causes: list[Cause] = []
    at, part = f"{path}.items.properties[{key}]", (items.get("properties") or {}).get(key)
    if part is None:
        why = "entries must all be names of item properties"
        causes.append(invalid(f"{path}.x-kubernetes-list-map-keys", keys, why))
    elif part.get("type") in ("array", "object"):
        why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
        causes.append(invalid(f"{at}.type", items["type"], why))
    if key in keys[:index]:
        causes.append(invalid(f"{path}.x-kubernetes-list-map-keys", keys, "must not contain duplicate entries"))
    if part is not None and key not in (items.get("required") or ()) and part.get("default") is None:
        why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
        causes.append(required(f"{at}.default", why))
    if part is not None and part.get("nullable"):
        why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
        causes.append(forbidden(f"{at}.nullable", why))
    return causes


_AT_ROOT: Final = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern "
    "MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields "
    "XValidations"
)
"""Names of Go fields, as the message has them."""
_GO_NAMES: Final = {
    "x-kubernetes-preserve-unknown-fields": "XPreserveUnknownFields",
    "x-kubernetes-validations": "XValidations",
}


def definition_causes(schema: Document, path: str, *, status: bool) -> list[Cause]:
    """``path`` is that of the schema in the definition, ``status`` whether it has the subresource."""
    causes = _at_root(schema, path) if status else []
    if schema.get("nullable"):
        causes.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    structure = structure_causes(schema, path) if is_readable(schema) else []
    structure = structure or (_defaults(read(schema), path, root=True) if is_readable(schema) else [])
    keywords = keyword_causes(schema, path)
    evaluable = is_readable(schema) and not structure
    return causes + structure + keywords + (rule_causes(schema, path, keywords) if evaluable else [])


def definition_warnings(schema: Document) -> list[str]:
    """Of formats that nothing checks, each once."""
    formats = []
    for part in _all(schema):
        name = part.get("format") or ""
        if name and part.get("type") == "string" and name.replace("-", "") not in FORMATS:
            formats.append(f'unrecognized format "{name}"')
    return list(dict.fromkeys(formats))


def _at_root(schema: Document, path: str) -> list[Cause]:
    """With a status subresource the status is checked by itself, which rules over the whole object would not notice."""
    if schema.get("type") and schema["type"] != "object":
        why = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
        return [Cause("FieldValueInvalid", f"{path}.type", f"Invalid value: {shown(schema['type'])}: {why}")]
    said = {
        _GO_NAMES.get(name, name[0].upper() + name[1:]) for name, value in schema.items() if value and name in MEMBERS
    }
    if said <= set(_AT_ROOT.split()):
        return []
    why = f"only [{_AT_ROOT}] fields are allowed at the root of the schema if the status subresource is enabled"
    return [Cause("FieldValueInvalid", path, f"Invalid value: {shown(schema)}: {why}")]


def _defaults(node: Node, path: str, *, root: bool = False) -> list[Cause]:
    """A default must be what a client could have sent."""
    causes: list[Cause] = []
    if node.default is not None and not root:
        causes += _default(node, f"{path}.default")
    if node.items is not None:
        causes += _defaults(node.items, f"{path}.items")
    for name, part in node.properties.items():
        causes += _defaults(part, f"{path}.properties[{name}]")
    return causes


def _default(node: Node, path: str) -> list[Cause]:
    causes: list[Cause] = []
    default = copied(node.default)
    if any(found.unknown for found in to_drop(node, default)):
        message = f"Invalid value: {shown(default)}: must not have unknown fields"
        causes.append(Cause("FieldValueInvalid", path, message))
    walk = walker(node)
    if walk is not None:
        try:
            walk(default, path, coerce)
        except MalformedMetadata as error:
            where, _, message = str(error).partition(": ")
            return [*causes, Cause("FieldValueInvalid", where, message)]
        embedded: list[Cause] = []
        walk(default, path, lambda value, at: embedded.extend(check(value, at)))
        if embedded:
            return causes + embedded
    return causes + [failure.cause(path) for failure in explain(node, node.default)]


def _all(schema: Any) -> Iterator[Document]:
    """A schema and all below it."""
    if not isinstance(schema, dict):
        return
    yield schema
    for part in (schema.get("items"), schema.get("additionalProperties"), schema.get("not")):
        yield from _all(part)
    for part in (schema.get("properties") or {}).values():
        yield from _all(part)
    for _, part in junctors(schema):
        yield from _all(part)
