"""Custom resources: what their definition says of fields, columns and the status subresource."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from koordinator.api.document import Document, copied, same
from koordinator.api.names import dns_subdomain
from koordinator.cluster.errors import bad_request
from koordinator.cluster.resource import Cause, Column, RequestContext
from koordinator.cluster.strategy.metadata import finalizer_warnings, keep_system_metadata, validate_metadata
from koordinator.cluster.strategy.table import AGE, NAME, age
from koordinator.cluster.structural_schema.custom_schema import CustomSchema
from koordinator.cluster.structural_schema.embedded_resource import MalformedMetadata

_STEP: Final = re.compile(
    r"""\.?((?:[A-Za-z0-9_\-/]|\\.)+)|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]|\[(\*|-?\d+)\]"""
)
_FILTER: Final = re.compile(r"""\[\?\(@\.([\w.\-]+)\s*==\s*["']([^"']*)["']\)\]""")


class CustomResourceStrategy:
    """One version of one CustomResourceDefinition."""

    def __init__(self, crd: Document, version: str) -> None:
        """Raises KeyError when the definition has no such version."""
        found = {entry["name"]: entry for entry in crd["spec"]["versions"]}[version]
        self._kind: str = (crd["spec"].get("names") or {}).get("kind") or ""
        self._version = version
        schema = (found.get("schema") or {}).get("openAPIV3Schema")
        unknown_fields_stay = schema is None or crd["spec"].get("preserveUnknownFields")
        self.schema = CustomSchema(schema or {}, prunes=not unknown_fields_stay)
        self._namespaced = crd["spec"].get("scope") == "Namespaced"
        self._status = (found.get("subresources") or {}).get("status") is not None
        self._printed = found.get("additionalPrinterColumns") or []
        self._selectable = [entry["jsonPath"].lstrip(".") for entry in found.get("selectableFields") or []]

    def decode(self, obj: Document, old: Document | None = None) -> None:
        """Drop what the schema does not know and fill in its defaults. Raises ApiError 400."""
        try:
            self.schema.normalize(obj)
        except MalformedMetadata as error:
            kind = self._kind
            raise bad_request(f'{kind} in version "{self._version}" cannot be handled as a {kind}: {error}') from error

    def unknown_fields(self, obj: Document) -> list[str]:
        return self.schema.unknown_fields(obj)

    def prepare_create(self, obj: Document, context: RequestContext) -> None:
        if self._status:
            obj.pop("status", None)
        obj["metadata"]["generation"] = 1
        context.warnings.extend(finalizer_warnings(obj["metadata"], []))

    def prepare_update(self, obj: Document, old: Document, context: RequestContext) -> None:
        keep_system_metadata(obj, old)
        context.warnings.extend(finalizer_warnings(obj["metadata"], old["metadata"].get("finalizers") or []))
        if self._status:
            _take(obj, old, "status")
        if not same(self._desired(obj), self._desired(old)):
            obj["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1

    def prepare_status_update(self, obj: Document, old: Document, context: RequestContext) -> None:
        kept = {name: obj["metadata"][name] for name in ("resourceVersion", "managedFields") if name in obj["metadata"]}
        for name in (set(obj) | set(old)) - {"status", "apiVersion", "kind"}:
            _take(obj, old, name)
        obj["metadata"].update(kept)

    def validate(self, obj: Document, old: Document | None) -> list[Cause]:
        return validate_metadata(obj, old, self._namespaced, dns_subdomain) + self.schema.causes(obj, old)

    def validate_status(self, obj: Document, old: Document) -> list[Cause]:
        return validate_metadata(obj, old, self._namespaced, dns_subdomain) + self.schema.status_causes(obj, old)

    def columns(self) -> Sequence[Column]:
        if not self._printed:
            return (NAME[0], AGE[0])
        return (
            NAME[0],
            *(
                Column(
                    entry["name"],
                    entry.get("type") or "string",
                    entry.get("format") or "",
                    entry.get("description") or "",
                    entry.get("priority") or 0,
                )
                for entry in self._printed
            ),
        )

    def row(self, obj: Document, now: datetime) -> list[Any]:
        name = obj["metadata"].get("name") or ""
        if not self._printed:
            return [name, AGE[1](obj, now)]
        return [name, *(_cell(obj, entry, now) for entry in self._printed)]

    def fields(self, obj: Document) -> Mapping[str, str]:
        labels = {"metadata.name": obj["metadata"].get("name") or ""}
        if self._namespaced:
            labels["metadata.namespace"] = obj["metadata"].get("namespace") or ""
        for path in self._selectable:
            found = find(obj, path)
            labels[path] = _text(found[0]) if found else ""
        return labels

    def _desired(self, obj: Document) -> Document:
        ignored = {"metadata", "apiVersion", "kind"} | ({"status"} if self._status else set())
        return {name: value for name, value in obj.items() if name not in ignored}


def _take(obj: Document, old: Document, name: str) -> None:
    if name in old:
        obj[name] = copied(old[name])
    else:
        obj.pop(name, None)


def _cell(obj: Document, entry: Document, now: datetime) -> Any:
    """An absent value is null, which kubectl shows as ``<none>`` or nothing."""
    found = find(obj, entry["jsonPath"])
    if not found:
        return None
    value, kind = found[0], entry.get("type")
    if kind == "date":
        return age(value, now) if isinstance(value, str) else "<unknown>"
    if kind == "integer":
        return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if kind == "number":
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    return _text(value)  # of several, the real server shows the first


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return msgspec.json.encode(value).decode()


def find(obj: Any, path: str) -> list[Any]:
    """The values at a simple JSONPath: fields, ``['a.b']``, indexes, ``[*]`` and ``[?(@.type=="Ready")]``."""
    values = [obj]
    rest = path.strip("{}").removeprefix("$")
    while rest:
        condition = _FILTER.match(rest)
        step = condition or _STEP.match(rest)
        if step is None:
            return []
        values = _filtered(values, step) if condition else _stepped(values, step)
        rest = rest[step.end() :]
    return [value for value in values if value is not None]


def _filtered(values: list[Any], step: re.Match[str]) -> list[Any]:
    path, wanted = step.groups()
    items = [item for value in values if isinstance(value, list) for item in value]
    return [item for item in items if [_text(found) for found in find(item, path)] == [wanted]]


def _stepped(values: list[Any], step: re.Match[str]) -> list[Any]:
    plain, single, double, index = step.groups()
    if index is None:
        written = plain if plain is not None else single if single is not None else double
        name = re.sub(r"\\(.)", r"\1", written)
        return [value[name] for value in values if isinstance(value, dict) and name in value]
    lists = [value for value in values if isinstance(value, list)]
    if index == "*":
        return [item for value in lists for item in value]
    at = int(index)
    return [value[at] for value in lists if -len(value) <= at < len(value)]
