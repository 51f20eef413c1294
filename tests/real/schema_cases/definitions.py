"""Definitions, most of them wrong."""

from __future__ import annotations

from typing import Any

from koordinator.api.document import Document
from tests.real.schema_cases.building import (
    ANY,
    ANY_OBJECT,
    EMBEDDED,
    FLAG,
    INT_OR_STRING,
    NUMBER,
    TEXT,
    items,
    mapped,
    obj,
    spec,
)

_ROOT_KEYED: Document = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
DEFINITIONS: dict[str, Document] = {
    "fine": spec(a=TEXT, b=items(NUMBER), c=mapped(FLAG)),
    "no-type-at-root": {"properties": {"spec": obj()}},
    "string-at-root": {"type": "string"},
    "no-type-of-field": spec(a={}),
    "no-type-of-items": spec(a=items({})),
    "no-type-of-values": spec(a=mapped({})),
    "unknown-type": spec(a={"type": "text"}),
    "null-type": spec(a={"type": "null"}),
    "array-without-items": spec(a={"type": "array"}),
    "items-as-list": spec(a={"type": "array", "items": [TEXT]}),
    "additional-at-root": {"type": "object", "additionalProperties": TEXT},
    "additional-and-properties": spec(a={**obj(x=TEXT), "additionalProperties": TEXT}),
    "additional-false-and-properties": spec(a={**obj(x=TEXT), "additionalProperties": False}),
    "additional-true-and-properties": spec(a={**obj(x=TEXT), "additionalProperties": True}),
    "type-in-junctor": spec(a={**TEXT, "anyOf": [{"type": "string"}, {"minLength": 1}]}),
    "everything-in-junctor": spec(
        a={
            **obj(x=TEXT),
            "allOf": [
                {
                    "description": "d",
                    "title": "t",
                    "default": {},
                    "nullable": True,
                    "additionalProperties": {"maxLength": 1},
                    "x-kubernetes-preserve-unknown-fields": True,
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-int-or-string": True,
                    "x-kubernetes-map-type": "atomic",
                }
            ],
        }
    ),
    "lists-in-junctor": spec(
        a={**items(TEXT), "not": {"x-kubernetes-list-type": "set", "x-kubernetes-list-map-keys": ["a"]}}
    ),
    "incomplete-properties": spec(a={**obj(x=TEXT), "oneOf": [{"properties": {"y": {"minLength": 1}}}]}),
    "incomplete-items": spec(a={**ANY_OBJECT, "not": {"items": {"minLength": 1}}}),
    "incomplete-below": spec(
        a={**obj(x=obj()), "anyOf": [{"properties": {"x": {"properties": {"z": {"minLength": 1}}}}}]}
    ),
    "metadata-in-junctor": {
        **obj(metadata={"type": "object"}),
        "allOf": [{"properties": {"metadata": {"properties": {}}}}],
    },
    "metadata-with-labels": obj(metadata=obj(labels=mapped(TEXT))),
    "metadata-with-name": obj(metadata=obj(name={"type": "string", "maxLength": 5})),
    "metadata-as-text": obj(metadata=TEXT),
    "kind-as-number": obj(kind=NUMBER, apiVersion=NUMBER),
    "preserve-false": spec(a={"type": "object", "x-kubernetes-preserve-unknown-fields": False}),
    "int-or-string-with-type": spec(a={**INT_OR_STRING, "type": "string"}),
    "int-or-string-preserving": spec(
        a={**INT_OR_STRING, **ANY, "x-kubernetes-embedded-resource": True, "type": "object"}
    ),
    "int-or-string-any-of": spec(a={**INT_OR_STRING, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
    "int-or-string-all-of": spec(
        a={**INT_OR_STRING, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "a"}]}
    ),
    "int-or-string-other-any-of": spec(a={**INT_OR_STRING, "anyOf": [{"type": "string"}, {"type": "integer"}]}),
    "embedded-without-type": spec(a={"x-kubernetes-embedded-resource": True, **ANY}),
    "embedded-as-list": spec(a={**items(TEXT), "x-kubernetes-embedded-resource": True}),
    "embedded-without-properties": spec(a={"type": "object", "x-kubernetes-embedded-resource": True}),
    "embedded-with-additional": spec(a={**mapped(TEXT), "x-kubernetes-embedded-resource": True}),
    "embedded-kind": spec(a={**EMBEDDED, "properties": {"kind": NUMBER, "metadata": TEXT}}),
    "list-type-of-object": spec(a={"type": "object", "x-kubernetes-list-type": "set"}),
    "list-type-without-type": spec(a={**ANY, "x-kubernetes-list-type": "set"}),
    "list-type-unknown": spec(a=items(TEXT, **{"x-kubernetes-list-type": "bag"})),
    "map-type-unknown": spec(a={**mapped(TEXT), "x-kubernetes-map-type": "bag"}),
    "map-type-of-list": spec(a=items(TEXT, **{"x-kubernetes-map-type": "atomic"})),
    "map-keys-without-type": spec(a=items(obj(name=TEXT), **{"x-kubernetes-list-map-keys": ["name"]})),
    "map-keys-of-set": spec(a=items(TEXT, **{"x-kubernetes-list-map-keys": ["name"], "x-kubernetes-list-type": "set"})),
    "map-without-keys": spec(a=items(obj(name=TEXT), **{"x-kubernetes-list-type": "map"})),
    "map-of-texts": spec(a=items(TEXT, **_ROOT_KEYED)),
    "map-key-unknown": spec(a=items(obj(x=TEXT), **_ROOT_KEYED)),
    "map-key-optional": spec(a=items(obj(name=TEXT), **_ROOT_KEYED)),
    "map-key-nullable": spec(
        a=items({**obj(name={**TEXT, "nullable": True}), "required": ["name"], "nullable": True}, **_ROOT_KEYED)
    ),
    "map-key-object": spec(a=items({**obj(name=obj()), "required": ["name"]}, **_ROOT_KEYED)),
    "map-key-twice": spec(
        a=items(
            {**obj(name=TEXT), "required": ["name"]},
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "name"]},
        )
    ),
    "set-of-objects": spec(a=items(obj(x=TEXT), **{"x-kubernetes-list-type": "set"})),
    "set-of-sets": spec(a=items(items(TEXT, **{"x-kubernetes-list-type": "set"}), **{"x-kubernetes-list-type": "set"})),
    "set-of-atomic-objects": spec(
        a=items({**obj(x=TEXT), "x-kubernetes-map-type": "atomic"}, **{"x-kubernetes-list-type": "set"})
    ),
    "set-nullable": spec(a=items({**TEXT, "nullable": True}, **{"x-kubernetes-list-type": "set"})),
    "unique-items": spec(a=items(TEXT, uniqueItems=True)),
    "bad-pattern": spec(a={**TEXT, "pattern": "a["}),
    "look-ahead": spec(a={**TEXT, "pattern": "(?=a)b"}),
    "back-reference": spec(a={**TEXT, "pattern": r"(a)\1"}),
    "open-group": spec(a={**TEXT, "pattern": "(a"}),
    "closed-group": spec(a={**TEXT, "pattern": "a)"}),
    "nothing-repeated": spec(a={**TEXT, "pattern": "*a"}),
    "repeated-twice": spec(a={**TEXT, "pattern": "a**"}),
    "default-fine": spec(a={**TEXT, "default": "x"}, b={**obj(c=TEXT), "default": {"c": "d"}}),
    "default-of-wrong-type": spec(a={**TEXT, "default": 1}),
    "default-out-of-bounds": spec(a={**NUMBER, "minimum": 2, "default": 1}, b={**TEXT, "enum": ["a"], "default": "b"}),
    "default-with-unknown": spec(a={**obj(x=TEXT), "default": {"y": 1}}),
    "default-without-required": spec(a={**obj(x=TEXT), "required": ["x"], "default": {}}),
    "default-in-items": spec(a=items({**TEXT, "default": 1})),
    "default-in-metadata": obj(metadata=obj(name={**TEXT, "default": "a"})),
    "default-of-kind": obj(kind={**TEXT, "default": "a"}),
    "default-null": spec(a={**TEXT, "nullable": True, "default": None}),
    "default-embedded": spec(a={**EMBEDDED, "default": {"apiVersion": "v1", "kind": "Pod"}}),
    "default-embedded-bad": spec(a={**EMBEDDED, "default": {"kind": "Pod"}}),
    "default-int-or-string": spec(a={**INT_OR_STRING, "default": "10%"}),
    "default-format": spec(a={**TEXT, "format": "date-time", "default": "today"}),
    "ref": spec(a={"$ref": "#/x"}),
    "definitions": {**obj(), "definitions": {"a": TEXT}},
    "pattern-properties": spec(a={"type": "object", "patternProperties": {"a": TEXT}}),
    "additional-items": spec(a=items(TEXT, additionalItems=True)),
    "dependencies": spec(a={"type": "object", "dependencies": {"a": ["b"]}}),
    "schema-id": spec(a={**TEXT, "id": "x"}),
    "nullable-root": {**obj(), "nullable": True},
    "unknown-format": spec(
        a={**TEXT, "format": "colour"}, b={**NUMBER, "format": "int32"}, c={**TEXT, "format": "colour"}
    ),
}
"""Name -> schema."""
STATUS_DEFINITIONS: dict[str, Document] = {
    "any-of-at-root": {**obj(spec=obj()), "anyOf": [{"required": ["spec"]}]},
    "additional-at-root": {**obj(spec=obj()), "additionalProperties": True},
    "no-type": {"properties": {"spec": obj()}},
    "plain": {**obj(spec=obj(), status=obj()), "required": ["spec"], "description": "d"},
}
"""The same, of definitions with a status subresource."""

_PLAIN: Document = {"schema": {"openAPIV3Schema": obj(spec=obj())}}


def _named(**names: Any) -> Document:
    return {"names": {"plural": "things", "kind": "Thing", **names}}


def _versions(*versions: Document) -> Document:
    return {"versions": [{"served": True, "storage": False, **_PLAIN, **version} for version in versions]}


def _with(**more: Any) -> Document:
    return _versions({"name": "v1", "storage": True, **more})


def _column(**column: Any) -> Document:
    return _with(additionalPrinterColumns=[{"name": "A", "type": "string", "jsonPath": ".spec.a", **column}])


SPECS: dict[str, Document] = {
    "preserving": {"preserveUnknownFields": True},
    "no-schema": _versions({"name": "v1", "storage": True, "schema": None}),
    "one-schema-of-two": _versions({"name": "v1", "storage": True}, {"name": "v2", "schema": None}),
    "no-storage-version": _versions({"name": "v1"}),
    "two-storage-versions": _versions({"name": "v1", "storage": True}, {"name": "v2", "storage": True}),
    "same-version-twice": _versions({"name": "v1", "storage": True}, {"name": "v1"}),
    "bad-version": _versions({"name": "V1", "storage": True}),
    "no-versions": {"versions": []},
    "two-schemas-one-bad": _versions(
        {"name": "v1", "storage": True}, {"name": "v2", "schema": {"openAPIV3Schema": spec(a={})}}
    ),
    "two-schemas-both-bad": _versions(
        *({"name": name, "storage": name == "v1", "schema": {"openAPIV3Schema": spec(a={})}} for name in ("v1", "v2"))
    ),
    "no-scope": {"scope": ""},
    "bad-scope": {"scope": "Everywhere"},
    "bad-kind": _named(kind="my_thing"),
    "bad-list-kind": _named(listKind="Thing List"),
    "kind-as-list-kind": _named(listKind="Thing"),
    "bad-singular": _named(singular="Thing"),
    "bad-short-name": _named(shortNames=["ok", "T!"]),
    "bad-category": _named(categories=["All"]),
    "column-of-unknown-type": _column(type="text"),
    "column-of-unknown-format": _column(format="colour"),
    "column-without-path": _column(jsonPath=""),
    "column-without-name": _column(name=""),
    "column-with-bare-path": _column(jsonPath="spec.a"),
    "scale-outside-of-spec": _with(
        subresources={"scale": {"specReplicasPath": ".replicas", "statusReplicasPath": ".spec.replicas"}}
    ),
    "scale-without-paths": _with(subresources={"scale": {"specReplicasPath": "", "statusReplicasPath": ""}}),
    "scale-selector-elsewhere": _with(
        subresources={
            "scale": {"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.a", "labelSelectorPath": ".labels"}
        }
    ),
    "warning-without-deprecation": _with(deprecationWarning="old"),
    "empty-deprecation-warning": _with(deprecated=True, deprecationWarning=""),
    "conversion-unknown": {"conversion": {"strategy": "Magic"}},
    "conversion-without-webhook": {"conversion": {"strategy": "Webhook"}},
    "conversion-webhook-unasked": {"conversion": {"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}},
}
"""Name -> what is special in the rest of the definition of things."""
