"""One schema at work: everything that a write or a read of a custom resource asks of it, compiled once."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.cluster.resource import Cause
from koordinator.cluster.schema.strict import Unknown
from koordinator.cluster.structural_schema.correlation import Correlated
from koordinator.cluster.structural_schema.defaulting import filler
from koordinator.cluster.structural_schema.embedded_resource import (
    check,
    coerce,
    coerce_metadata,
    unknown_in_metadata,
    walker,
)
from koordinator.cluster.structural_schema.explanation import explain
from koordinator.cluster.structural_schema.failure import NO_FIELD
from koordinator.cluster.structural_schema.list_types import checker
from koordinator.cluster.structural_schema.node import Node, read
from koordinator.cluster.structural_schema.pruning import Pruner, drop, unknown_paths
from koordinator.cluster.structural_schema.validity import accepts, questions_of

_BLOCKING: Final = frozenset(
    ("FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid")
)


class CustomSchema:
    """Of one version of a definition."""

    def __init__(self, schema: Document, *, prunes: bool = True) -> None:
        """``prunes`` is false for the few old definitions with spec.preserveUnknownFields."""
        self._root = read(schema)
        self._questions = questions_of(self._root)
        self._status = self._root.properties.get("status") or Node()
        self._status_questions = questions_of(self._status)
        self._pruner = Pruner(self._root) if prunes else None
        self._fill = filler(self._root)
        self._embedded = walker(self._root)
        self._list_types = checker(self._root)
        self._has_rules = self._root.any("rules")

    def unknown_fields(self, obj: Document) -> list[str]:
        """The paths of what ``normalize`` would drop, in the order of the real server's warnings."""
        paths = [found.path for found in unknown_in_metadata(obj, "")]
        if self._pruner is not None:
            paths += unknown_paths(self._pruner.find(obj))
        embedded: list[Unknown] = []
        if self._embedded is not None:
            self._embedded(obj, "", lambda value, path: embedded.extend(unknown_in_metadata(value, path)))
        return paths + sorted(found.path for found in embedded)

    def normalize(self, obj: Document) -> None:
        """What decoding does: metadata as Go has it, nothing unknown, no null that is not taken, defaults.

        Raises MalformedMetadata.
        """
        coerce_metadata(obj)
        self.prune(obj)
        if self._embedded is not None:
            self._embedded(obj, "", coerce)
        if self._fill is not None:
            self._fill(obj)

    def refresh(self, obj: Document) -> None:
        """What reading does to an object that was stored under another schema. Never fails."""
        self.prune(obj)
        if self._fill is not None:
            self._fill(obj)

    def prune(self, obj: Document) -> None:
        """Drop what is unknown, and nulls that are not taken."""
        if self._pruner is not None:
            drop(self._pruner.find(obj))

    def causes(self, obj: Document, old: Document | None) -> list[Cause]:
        """Everything that is wrong with an object that has been normalized; ``old`` is None on create."""
        causes: list[Cause] = []
        if not accepts(self._questions, obj):
            correlated = None if old is None else Correlated(obj, old, self._root)
            causes += [failure.cause("") for failure in explain(self._root, obj, correlated)]
        if self._embedded is not None:
            self._embedded(obj, "", lambda value, path: causes.extend(check(value, path)))
        return self._with_rules(causes + self._repetitions(obj, old))

    def status_causes(self, obj: Document, old: Document) -> list[Cause]:
        """The same for an update of the status alone."""
        causes: list[Cause] = []
        if "status" in obj and not accepts(self._status_questions, obj["status"]):
            correlated = Correlated(obj, old, self._root).member("status")
            causes += [failure.cause("status") for failure in explain(self._status, obj["status"], correlated)]
        return self._with_rules(causes + self._repetitions(obj, old))

    def _repetitions(self, obj: Document, old: Document | None) -> list[Cause]:
        """What is in a set twice, unless it was so before."""
        if self._list_types is None:
            return []
        causes = self._list_types(obj, "")
        return [] if causes and old is not None and self._list_types(old, "") else causes

    def _with_rules(self, causes: list[Cause]) -> list[Cause]:
        if not self._has_rules or not any(cause.reason in _BLOCKING for cause in causes):
            return causes
        message = (
            "Invalid value: null: some validation rules were not checked because the object was invalid; "
            "correct the existing errors to complete validation"
        )
        return [*causes, Cause("FieldValueInvalid", NO_FIELD, message)]
