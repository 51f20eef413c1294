"""Is a schema structural: does it say of each field, once and outside of all junctors, what it is?

Schemas are looked at as they were written, and errors name their paths and use the words of the real server
(k8s.io/apiextensions-apiserver, apiserver/schema).
"""

from __future__ import annotations

from typing import Any, Final, Literal

from koordinator.api.document import Document
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import forbidden, invalid, required
from koordinator.cluster.structural_schema.keywords import PatternError, matcher

Level = Literal["root", "item", "field"]
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]
_UNTYPED: Final = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_NOT_IN_JUNCTORS: Final = {
    "type": "must be empty to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}
_MAY_BE_EMPTY: Final = ("default", "x-kubernetes-list-type", "x-kubernetes-map-type")
"""Of these an empty value counts, too."""
_UNSUPPORTED: Final = (
    "id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"
)  # fmt: skip


def structure_causes(schema: Document, path: str) -> list[Cause]:
    """Sorted as the real server sorts them."""
    causes = _node(schema, "root", path) + _complete(schema, schema, path, path)
    return sorted(causes, key=lambda cause: f"{cause.field}: {cause.message}")


def is_readable(schema: Any) -> bool:
    """Without the keywords that no structural schema has; ``keyword_causes`` complains of those."""
    if not isinstance(schema, dict):
        return not isinstance(schema, list)
    if any(schema.get(name) for name in _UNSUPPORTED) or schema.get("x-kubernetes-preserve-unknown-fields") is False:
        return False
    below = [schema.get("items"), schema.get("additionalProperties"), schema.get("not")]
    below += (schema.get("properties") or {}).values()
    below += [part for _, part in junctors(schema)]
    return all(is_readable(part) for part in below)


def junctors(schema: Document) -> list[tuple[str, Document]]:
    """(path below the schema, schema) of what allOf, anyOf and oneOf hold."""
    return [
        (f".{name}[{index}]", part)
        for name in ("anyOf", "allOf", "oneOf")
        for index, part in enumerate(schema.get(name) or ())
    ]


def _node(schema: Document, level: Level, path: str) -> list[Cause]:
    causes: list[Cause] = []
    if schema.get("type") == "array" and schema.get("items") is None:
        causes.append(required(f"{path}.items", "must be specified"))
    if schema.get("items") is not None:
        causes += _node(schema["items"], "item", f"{path}.items")
    for name, part in (schema.get("properties") or {}).items():
        causes += _node(part, "field", f"{path}.properties[{name}]")
    additional = schema.get("additionalProperties")
    if additional is not None and level == "root":
        causes.append(forbidden(f"{path}.additionalProperties", "must not be used at the root"))
    if isinstance(additional, dict):
        causes += _node(additional, "field", f"{path}.additionalProperties")
    return (
        causes
        + _extensions(schema, path)
        + _values(schema, path)
        + _type(schema, level, path)
        + _meta(schema, level, path)
    )


def _extensions(schema: Document, path: str) -> list[Cause]:
    if not schema.get("x-kubernetes-int-or-string"):
        return []
    names = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource")
    return [
        invalid(f"{path}.{name}", True, "must be false if x-kubernetes-int-or-string is true")
        for name in names
        if schema.get(name)
    ]


def _type(schema: Document, level: Level, path: str) -> list[Cause]:
    causes: list[Cause] = []
    kind, embedded = schema.get("type") or "", schema.get("x-kubernetes-embedded-resource")
    any_type = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if embedded and kind != "object":
        why = "must be object if x-kubernetes-embedded-resource is true"
        causes.append(invalid(f"{path}.type", kind, why) if kind else required(f"{path}.type", why))
    elif not kind and not any_type:
        causes.append(required(f"{path}.type", _UNTYPED[level]))
    if embedded and schema.get("additionalProperties") is not None:
        why = "must not be used if x-kubernetes-embedded-resource is set"
        causes.append(forbidden(f"{path}.additionalProperties", why))
    if level == "root" and kind not in ("", "object"):
        causes.append(invalid(f"{path}.type", kind, "must be object at the root"))
    return causes


def _meta(schema: Document, level: Level, path: str) -> list[Cause]:
    """What is said of apiVersion, kind and metadata of a whole object."""
    causes: list[Cause] = []
    properties, embedded = schema.get("properties") or {}, schema.get("x-kubernetes-embedded-resource")
    whole = level == "root" or embedded
    for name in ("kind", "apiVersion"):
        if whole and name in properties and properties[name].get("type") != "string":
            kind = properties[name].get("type") or ""
            causes.append(invalid(f"{path}.properties[{name}].type", kind, "must be string"))
    metadata, at = properties.get("metadata"), f"{path}.properties[metadata]"
    if whole and metadata is not None and metadata.get("type") != "object":
        causes.append(invalid(f"{at}.type", metadata.get("type") or "", "must be object"))
    if level == "root" and metadata is not None and not _says_names_only(metadata):
        why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        causes.append(forbidden(at, why))
    if embedded and not schema.get("x-kubernetes-preserve-unknown-fields") and not properties:
        why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        causes.append(required(f"{path}.properties", why))
    return causes


def _says_names_only(metadata: Document) -> bool:
    said = {name for name, value in metadata.items() if value not in (None, "", [], {}, False)} - {"type", "default"}
    return said <= {"properties"} and set(metadata.get("properties") or {}) <= {"name", "generateName"}


def _values(schema: Document, path: str) -> list[Cause]:
    """The junctors of a schema, and its pattern."""
    causes: list[Cause] = []
    excused = _excused(schema)
    for below, part in junctors(schema):
        if below not in excused:
            causes += _nested(part, f"{path}{below}", excused=below == ".allOf[0]" and ".allOf[0].anyOf" in excused)
    if isinstance(schema.get("not"), dict):
        causes += _nested(schema["not"], f"{path}.not")
    if schema.get("pattern"):
        try:
            matcher(schema["pattern"])
        except PatternError as error:
            why = f"must be a valid regular expression, but isn't: {error}"
            causes.append(invalid(f"{path}.pattern", schema["pattern"], why))
    return causes


def _excused(schema: Document) -> tuple[str, ...]:
    """The one pattern of junctors that may name types: that of an int-or-string."""
    if schema.get("anyOf") == _INT_OR_STRING:
        return (".anyOf[0]", ".anyOf[1]")
    first = (schema.get("allOf") or [{}])[0]
    return (".allOf[0].anyOf",) if first.get("anyOf") == _INT_OR_STRING else ()


def _nested(schema: Document, path: str, *, excused: bool = False) -> list[Cause]:
    """A schema within a junctor, which may only restrict; ``excused``: its ``anyOf`` may name types."""
    looked_at = {name: value for name, value in schema.items() if name != "anyOf"} if excused else schema
    causes = [
        forbidden(f"{path}.{name}", why)
        for name, why in _NOT_IN_JUNCTORS.items()
        if (schema.get(name) is not None if name in _MAY_BE_EMPTY else schema.get(name))
    ]
    causes += [cause for below, part in junctors(looked_at) for cause in _nested(part, f"{path}{below}")]
    if isinstance(schema.get("not"), dict):
        causes += _nested(schema["not"], f"{path}.not")
    if isinstance(schema.get("items"), dict):
        causes += _nested(schema["items"], f"{path}.items")
    for name, part in (schema.get("properties") or {}).items():
        causes += _nested(part, f"{path}.properties[{name}]")
    if schema.get("additionalProperties"):
        causes.append(forbidden(f"{path}.additionalProperties", "must be undefined to be structural"))
    if "metadata" in (schema.get("properties") or {}):
        causes.append(forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context"))
    return causes + _pattern_of(schema, path)


def _pattern_of(schema: Document, path: str) -> list[Cause]:
    return _values({"pattern": schema["pattern"]}, path) if schema.get("pattern") else []


def _complete(values: Document, schema: Document | None, path: str, at: str) -> list[Cause]:
    """Whatever a junctor speaks of must be there outside of it; ``at`` is where it is spoken of."""
    if schema is None:
        return [required(path, f"because it is defined in {at}")]
    causes: list[Cause] = []
    for below, part in [*junctors(values), *([(".not", values["not"])] if isinstance(values.get("not"), dict) else [])]:
        causes += _complete_nested(part, schema, path, f"{at}{below}")
    return causes


def _complete_nested(values: Document, schema: Document | None, path: str, at: str) -> list[Cause]:
    causes = _complete(values, schema, path, at)
    if schema is None:
        return causes
    if isinstance(values.get("items"), dict):
        causes += _complete_nested(values["items"], schema.get("items"), f"{path}.items", f"{at}.items")
    for name, part in (values.get("properties") or {}).items():
        known, below = (schema.get("properties") or {}).get(name), f".properties[{name}]"
        causes += _complete_nested(part, known, path + below, at + below)
    return causes
