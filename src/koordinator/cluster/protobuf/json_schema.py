"""The messages of the JSON schemas in CustomResourceDefinitions, which the table of types does not hold.

A schema stands in few places of the API, and its Go type reads and writes its JSON itself: ``items`` is a schema or a
list of them, ``additionalProperties`` a schema or a bool, an entry of ``dependencies`` a schema or a list of names.
"""

from __future__ import annotations

from typing import Final

from koordinator.api.kubernetes_types.table import Field, ObjectType, Shape, Type

SCHEMA, OR_LIST, OR_BOOL, OR_NAMES = "Schema", "SchemaOrList", "SchemaOrBool", "SchemaOrNames"
NUMBER: Final = "Number"
"""A float64 that JSON writes without a fraction where it has none."""

_STRING, _BOOL, _INT64 = (Type(Shape.SCALAR, name) for name in ("string", "bool", "int64"))
_ANY, _NUMBER = Type(Shape.SCALAR, "Raw"), Type(Shape.SCALAR, NUMBER)
_SCHEMA, _OR_LIST, _OR_BOOL, _OR_NAMES = (Type(Shape.SCALAR, name) for name in (SCHEMA, OR_LIST, OR_BOOL, OR_NAMES))


def _object(name: str, *rows: tuple[str, int, Type, bool]) -> ObjectType:
    """``rows``: the name in JSON, the number, the type, and whether it is a pointer in Go."""
    fields = {
        field: Field(field, type_, number, pointer=pointer, omit_empty=True) for field, number, type_, pointer in rows
    }
    return ObjectType(name, fields, {})


def _list(of: Type) -> Type:
    return Type(Shape.LIST, element=of)


def _map(of: Type) -> Type:
    return Type(Shape.MAP, element=of)


_DOCUMENTATION: Final = _object("ExternalDocumentation", ("description", 1, _STRING, False), ("url", 2, _STRING, False))
_RULE: Final = _object(
    "ValidationRule",
    ("rule", 1, _STRING, True),
    ("message", 2, _STRING, False),
    ("messageExpression", 3, _STRING, False),
    ("reason", 4, _STRING, True),
    ("fieldPath", 5, _STRING, False),
    ("optionalOldSelf", 6, _BOOL, True),
)
SCHEMA_TYPE: Final = _object(
    "JSONSchemaProps",
    ("id", 1, _STRING, False),
    ("$schema", 2, _STRING, False),
    ("$ref", 3, _STRING, True),
    ("description", 4, _STRING, False),
    ("type", 5, _STRING, False),
    ("format", 6, _STRING, False),
    ("title", 7, _STRING, False),
    ("default", 8, _ANY, True),
    ("maximum", 9, _NUMBER, True),
    ("exclusiveMaximum", 10, _BOOL, False),
    ("minimum", 11, _NUMBER, True),
    ("exclusiveMinimum", 12, _BOOL, False),
    ("maxLength", 13, _INT64, True),
    ("minLength", 14, _INT64, True),
    ("pattern", 15, _STRING, False),
    ("maxItems", 16, _INT64, True),
    ("minItems", 17, _INT64, True),
    ("uniqueItems", 18, _BOOL, False),
    ("multipleOf", 19, _NUMBER, True),
    ("enum", 20, _list(_ANY), False),
    ("maxProperties", 21, _INT64, True),
    ("minProperties", 22, _INT64, True),
    ("required", 23, _list(_STRING), False),
    ("items", 24, _OR_LIST, True),
    ("allOf", 25, _list(_SCHEMA), False),
    ("oneOf", 26, _list(_SCHEMA), False),
    ("anyOf", 27, _list(_SCHEMA), False),
    ("not", 28, _SCHEMA, True),
    ("properties", 29, _map(_SCHEMA), False),
    ("additionalProperties", 30, _OR_BOOL, True),
    ("patternProperties", 31, _map(_SCHEMA), False),
    ("dependencies", 32, _map(_OR_NAMES), False),
    ("additionalItems", 33, _OR_BOOL, True),
    ("definitions", 34, _map(_SCHEMA), False),
    ("externalDocs", 35, Type(Shape.OBJECT, declared=_DOCUMENTATION), True),
    ("example", 36, _ANY, True),
    ("nullable", 37, _BOOL, False),
    ("x-kubernetes-preserve-unknown-fields", 38, _BOOL, True),
    ("x-kubernetes-embedded-resource", 39, _BOOL, False),
    ("x-kubernetes-int-or-string", 40, _BOOL, False),
    ("x-kubernetes-list-map-keys", 41, _list(_STRING), False),
    ("x-kubernetes-list-type", 42, _STRING, True),
    ("x-kubernetes-map-type", 43, _STRING, True),
    ("x-kubernetes-validations", 44, _list(Type(Shape.OBJECT, declared=_RULE)), False),
)
ONE, MANY = 1, 2
"""The numbers of the schema and of the list of schemas or names, where it may be either."""
ALLOWS, ALLOWED = 1, 2
"""Those of the bool and of the schema, where it may be either."""
