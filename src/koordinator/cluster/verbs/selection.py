"""Which objects a list, a watch or a deletecollection is about, decided with as little decoding as possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from koordinator.api.kubernetes_types.table import kind_type
from koordinator.cluster.resource import Resource
from koordinator.cluster.selectors import (
    LabelMatcher,
    field_label_not_supported,
    parse_field_selector,
    parse_label_selector,
)
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.encoding import decode
from koordinator.cluster.verbs.target import Target

_REMEMBERED = 20_000
_OF_EVERY_KIND = frozenset(("metadata.name", "metadata.namespace"))


class _Labelled(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Head(msgspec.Struct):
    metadata: _Labelled


_head = msgspec.json.Decoder(_Head).decode


class SelectorFacts:
    """Labels and field labels by revision: many watchers ask the same of one write."""

    def __init__(self) -> None:
        self._labels: dict[int, Mapping[str, str]] = {}
        self._fields: dict[tuple[int, str], Mapping[str, str]] = {}

    def labels(self, stored: Stored) -> Mapping[str, str]:
        found = self._labels.get(stored.revision)
        if found is None:
            if len(self._labels) >= _REMEMBERED:
                self._labels.clear()
            found = self._labels[stored.revision] = _head(stored.value).metadata.labels or {}
        return found

    def fields(self, resource: Resource, stored: Stored) -> Mapping[str, str]:
        key = (stored.revision, resource.api_version)
        found = self._fields.get(key)
        if found is None:
            if len(self._fields) >= _REMEMBERED:
                self._fields.clear()
            found = self._fields[key] = resource.strategy.fields(decode(resource, stored))
        return found


@dataclass(frozen=True, slots=True)
class Selection:
    """Label and field selector of one request, compiled."""

    resource: Resource
    facts: SelectorFacts
    labels: LabelMatcher | None
    fields: tuple[tuple[str, bool, str], ...]
    """(field, must be equal, value), without what ``name`` says already."""
    name: str | None
    """The one name that is asked for, if ``metadata.name`` is."""

    @classmethod
    def parse(cls, target: Target, facts: SelectorFacts, label_selector: str, field_selector: str) -> Selection:
        """Raises ApiError 400 for a selector that does not parse or a field that the kind does not offer."""
        name = target.name or None
        fields = []
        offered = set(_OF_EVERY_KIND)
        for field, operator, value in parse_field_selector(field_selector):
            if field == "metadata.name" and operator == "=" and name in (None, value):
                name = value
                continue
            if field not in offered:
                offered.update(target.resource.strategy.fields(_blank()))
                if field not in offered:
                    resource = target.resource
                    built_in = kind_type(resource.api_version, resource.kind) is not None
                    raise field_label_not_supported(field, only_metadata=built_in and offered == _OF_EVERY_KIND)
            fields.append((field, operator == "=", value))
        labels = parse_label_selector(label_selector) if label_selector else None
        return cls(target.resource, facts, labels, tuple(fields), name)

    @property
    def everything(self) -> bool:
        return self.labels is None and not self.fields and self.name is None

    def prefix(self, target: Target) -> str:
        """The smallest part of the store that holds all that can match."""
        if self.name is not None and (target.namespace or not target.resource.namespaced):
            return target.resource.storage_key(target.namespace, self.name)
        return target.prefix

    def matches(self, stored: Stored) -> bool:
        if self.name is not None and stored.key.rpartition("/")[2] != self.name:
            return False
        if self.labels is not None and not self.labels(self.facts.labels(stored)):
            return False
        if not self.fields:
            return True
        values = self.facts.fields(self.resource, stored)
        return all((values.get(field, "") == value) == equal for field, equal, value in self.fields)


def _blank() -> dict[str, dict[str, str]]:
    """What every stored object has; enough to ask a strategy for the names of its field labels."""
    return {"metadata": {}, "spec": {}, "status": {}, "involvedObject": {}, "regarding": {}}
