"""What is wrong with the schema of a definition, and what its author is only warned of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from koordinator.api.document import Document, copied
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import forbidden
from koordinator.cluster.structural_schema.embedded_resource import MalformedMetadata, check, coerce, walker
from koordinator.cluster.structural_schema.explanation import explain
from koordinator.cluster.structural_schema.failure import shown
from koordinator.cluster.structural_schema.formats import FORMATS
from koordinator.cluster.structural_schema.keyword_check import keyword_causes
from koordinator.cluster.structural_schema.node import Node, read
from koordinator.cluster.structural_schema.pruning import find_unknown
from koordinator.cluster.structural_schema.structure import is_readable, junctors, structure_causes

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
NOT_EVALUATED: Final = "x-kubernetes-validations are stored, but this server does not evaluate them"


def definition_causes(schema: Document, path: str, *, status: bool) -> list[Cause]:
    """``path`` is that of the schema in the definition, ``status`` whether it has the subresource."""
    causes = _at_root(schema, path) if status else []
    if schema.get("nullable"):
        causes.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    if is_readable(schema):
        structure = structure_causes(schema, path)
        causes += structure or _defaults(read(schema), path, root=True)
    return causes + keyword_causes(schema, path)


def definition_warnings(schema: Document) -> list[str]:
    """Of formats that nothing checks and of rules that are not evaluated, each once."""
    formats, has_rules = [], False
    for part in _all(schema):
        has_rules = has_rules or bool(part.get("x-kubernetes-validations"))
        name = part.get("format") or ""
        if name and part.get("type") == "string" and name.replace("-", "") not in FORMATS:
            formats.append(f'unrecognized format "{name}"')
    warnings = list(dict.fromkeys(formats))
    return [*warnings, NOT_EVALUATED] if has_rules else warnings


def _at_root(schema: Document, path: str) -> list[Cause]:
    """With a status subresource the status is checked by itself, which rules over the whole object would not notice."""
    if schema.get("type") and schema["type"] != "object":
        why = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
        return [Cause("FieldValueInvalid", f"{path}.type", f"Invalid value: {shown(schema['type'])}: {why}")]
    said = {_GO_NAMES.get(name, name[0].upper() + name[1:]) for name, value in schema.items() if value}
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
    if find_unknown(node, default):
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
