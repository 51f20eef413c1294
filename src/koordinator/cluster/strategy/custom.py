"""Custom resources: the strategy of one version of a CustomResourceDefinition, and its schema at work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from koordinator.api.document import Document, same
from koordinator.api.kubernetes_types.unknown_fields import Unknown
from koordinator.api.names import dns_subdomain
from koordinator.cluster.errors import bad_request
from koordinator.cluster.resource import Cause, Column, RequestContext
from koordinator.cluster.strategy.custom_columns import columns_of, find, row_of, text
from koordinator.cluster.strategy.metadata import (
    MalformedMetadata,
    coerce_metadata,
    finalizer_warnings,
    keep_system_metadata,
    take_over,
    unknown_in_metadata,
    validate_metadata,
)
from koordinator.cluster.structural_schema.embedded_resource import check, coerce, walker
from koordinator.cluster.structural_schema.explanation import Correlated, explain
from koordinator.cluster.structural_schema.failure import NO_FIELD
from koordinator.cluster.structural_schema.node import Node, read
from koordinator.cluster.structural_schema.pruning import drop, fill, to_drop, unknown_paths
from koordinator.cluster.structural_schema.validity import accepts, checker, normality_of, validators_of

if TYPE_CHECKING:
    # What compiles expressions is loaded where a schema has some.
    from koordinator.cluster.structural_schema.rules import RuleTree


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
            if old is None or _changed(obj, old) & obj["metadata"].keys():
                coerce_metadata(obj)
            self.schema.normalize(obj)
        except MalformedMetadata as error:
            kind = self._kind
            raise bad_request(f'{kind} in version "{self._version}" cannot be handled as a {kind}: {error}') from error

    def unknown_fields(self, obj: Document, old: Document | None = None) -> list[str]:
        is_shared = old is not None and obj.get("metadata") is old["metadata"]
        in_metadata = [] if is_shared else [found.path for found in unknown_in_metadata(obj, "")]
        return in_metadata + self.schema.unknown_fields(obj)

    def prepare_create(self, obj: Document, context: RequestContext) -> None:
        if self._status:
            obj.pop("status", None)
        obj["metadata"]["generation"] = 1
        context.warnings.extend(finalizer_warnings(obj["metadata"], []))

    def prepare_update(self, obj: Document, old: Document, context: RequestContext) -> None:
        if _changed(obj, old) - {"managedFields"}:
            keep_system_metadata(obj, old)
            context.warnings.extend(finalizer_warnings(obj["metadata"], old["metadata"].get("finalizers") or []))
        if self._status and obj.get("status", _ABSENT) is not old.get("status", _ABSENT):
            take_over(obj, old, "status")
        if not same(self._desired(obj), self._desired(old)):
            obj["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1

    def prepare_status_update(self, obj: Document, old: Document, context: RequestContext) -> None:
        kept = {name: obj["metadata"][name] for name in ("resourceVersion", "managedFields") if name in obj["metadata"]}
        for name in (set(obj) | set(old)) - {"status", "apiVersion", "kind"}:
            take_over(obj, old, name)
        obj["metadata"].update(kept)

    def validate(self, obj: Document, old: Document | None) -> list[Cause]:
        return self._metadata_causes(obj, old) + self.schema.causes(obj, old)

    def validate_status(self, obj: Document, old: Document) -> list[Cause]:
        return self._metadata_causes(obj, old) + self.schema.status_causes(obj, old)

    def _metadata_causes(self, obj: Document, old: Document | None) -> list[Cause]:
        if old is not None and _changed(obj, old) <= _KEPT_BY_SERVER and _managers(obj) <= _managers(old):
            return []
        return validate_metadata(obj, old, self._namespaced, dns_subdomain)

    def columns(self) -> Sequence[Column]:
        return columns_of(self._printed)

    def row(self, obj: Document, now: datetime) -> list[Any]:
        return row_of(self._printed, obj, now)

    def fields(self, obj: Document) -> Mapping[str, str]:
        labels = {"metadata.name": obj["metadata"].get("name") or ""}
        if self._namespaced:
            labels["metadata.namespace"] = obj["metadata"].get("namespace") or ""
        for path in self._selectable:
            found = find(obj, path)
            labels[path] = text(found[0]) if found else ""
        return labels

    def _desired(self, obj: Document) -> Document:
        ignored = {"metadata", "apiVersion", "kind"} | ({"status"} if self._status else set())
        return {name: value for name, value in obj.items() if name not in ignored}


# Metadata: most writes leave it to the server.


_ABSENT: Final = object()
_KEPT_BY_SERVER: Final = {"generation", "managedFields"}


def _changed(obj: Document, old: Document) -> set[str]:
    """The fields of ``metadata`` in which two objects differ."""
    new, known = obj["metadata"], old["metadata"]
    names = new.keys() | known.keys()
    return {name for name in names if not same(new.get(name, _ABSENT), known.get(name, _ABSENT))}


def _managers(obj: Document) -> set[tuple[str | None, str | None]]:
    return {(each.get("manager"), each.get("subresource")) for each in obj["metadata"].get("managedFields") or ()}


# The schema: everything that a write or a read needs of it, compiled once.


_BLOCKING: Final = frozenset(
    ("FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid")
)


class CustomSchema:
    """Of one version of a definition."""

    def __init__(self, schema: Document, *, prunes: bool = True) -> None:
        """``prunes`` is false for the few old definitions with spec.preserveUnknownFields."""
        self._root = read(schema)
        self._whole_object, self._prunes = replace(self._root, embedded=True), prunes
        self._normality = normality_of(self._whole_object)
        self._validators = validators_of(self._root)
        self._status = self._root.properties.get("status") or Node()
        self._status_validators = validators_of(self._status)
        self._embedded = walker(self._root)
        self._list_types = checker(self._root)
        self._has_rules = self._root.any("rules")

    def unknown_fields(self, obj: Document) -> list[str]:
        """The paths of what ``normalize`` would drop, in the order of the real server's warnings."""
        paths: list[str] = []
        if self._prunes and not accepts(self._normality, obj):
            paths = unknown_paths(to_drop(self._whole_object, obj))
        embedded: list[Unknown] = []
        if self._embedded is not None:
            self._embedded(obj, "", lambda value, path: embedded.extend(unknown_in_metadata(value, path)))
        return paths + sorted(found.path for found in embedded)

    def normalize(self, obj: Document) -> None:
        """What decoding does: nothing unknown, no null that is not taken, embedded metadata as Go has it, defaults.

        Raises MalformedMetadata.
        """
        is_normal = accepts(self._normality, obj)
        if not is_normal:
            self.prune(obj)
        if self._embedded is not None:
            self._embedded(obj, "", coerce)
        if not is_normal:
            fill(self._root, obj)

    def refresh(self, obj: Document) -> None:
        """What reading does to an object that was stored under another schema. Never fails."""
        if not accepts(self._normality, obj):
            self.prune(obj)
            fill(self._root, obj)

    def prune(self, obj: Document) -> None:
        """Drop what is unknown, and nulls that are not taken."""
        if self._prunes:
            drop(to_drop(self._whole_object, obj))

    def causes(self, obj: Document, old: Document | None) -> list[Cause]:
        """Everything that is wrong with an object that has been normalized; ``old`` is None on create."""
        causes: list[Cause] = []
        if not accepts(self._validators, obj):
            correlated = None if old is None else Correlated(obj, old, self._root)
            causes += [failure.cause("") for failure in explain(self._root, obj, correlated)]
        if self._embedded is not None:
            self._embedded(obj, "", lambda value, path: causes.extend(check(value, path)))
        return self._with_rules(causes + self._repetitions(obj, old), obj, old)

    def status_causes(self, obj: Document, old: Document) -> list[Cause]:
        """The same for an update of the status alone."""
        causes: list[Cause] = []
        if "status" in obj and not accepts(self._status_validators, obj["status"]):
            correlated = Correlated(obj, old, self._root).member("status")
            causes += [failure.cause("status") for failure in explain(self._status, obj["status"], correlated)]
        return self._with_rules(causes + self._repetitions(obj, old), obj, old)

    def _repetitions(self, obj: Document, old: Document | None) -> list[Cause]:
        """What is in a set twice, unless it was so before."""
        if self._list_types is None:
            return []
        causes = self._list_types(obj, "")
        return [] if causes and old is not None and self._list_types(old, "") else causes

    def _with_rules(self, causes: list[Cause], obj: Document, old: Document | None) -> list[Cause]:
        """And what the rules say, if the object is in order so far that they can be evaluated."""
        if not self._has_rules:
            return causes
        if any(cause.reason in _BLOCKING for cause in causes):
            message = (
                "Invalid value: null: some validation rules were not checked because the object was invalid; "
                "correct the existing errors to complete validation"
            )
            return [*causes, Cause("FieldValueInvalid", NO_FIELD, message)]
        rules = self._rules
        return causes + (rules.causes(obj, old, root=self._root) if rules is not None else [])

    @cached_property
    def _rules(self) -> RuleTree | None:
        """Compiled when they are first needed: a server may serve many kinds that nobody writes."""
        from koordinator.cluster.structural_schema.rules import rules_of

        return rules_of(self._root)
