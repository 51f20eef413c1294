"""One schema at work: everything that a write or a read of a custom resource needs of it, compiled once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.unknown_fields import Unknown
from koordinator.cluster.resource import Cause
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.structural_schema.embedded_resource import (
    check,
    coerce,
    coerce_metadata,
    unknown_in_metadata,
    walker,
)
from koordinator.cluster.structural_schema.explanation import Correlated, explain
from koordinator.cluster.structural_schema.failure import NO_FIELD, go_json, shown
from koordinator.cluster.structural_schema.node import Node, read
from koordinator.cluster.structural_schema.pruning import Pruner, drop, filler, unknown_paths
from koordinator.cluster.structural_schema.validity import accepts, validators_of

if TYPE_CHECKING:
    # What compiles expressions is loaded where a schema has some.
    from koordinator.cluster.structural_schema.rules import RuleTree

# Lists of type ``set`` and ``map``: no item, and no combination of keys, twice.


Check = Callable[[Any, str], list[Cause]]
"""(value, path) -> causes."""


def checker(node: Node) -> Check | None:
    """None where nothing below is such a list."""
    members = {name: found for name, part in node.properties.items() if (found := checker(part)) is not None}
    additional = checker(node.additional_node) if node.additional_node is not None else None
    items = checker(node.items) if node.items is not None else None
    own = {"set": _set, "map": _map}.get(node.list_type)
    if not (members or additional or items or own):
        return None

    def check(value: Any, path: str) -> list[Cause]:
        causes: list[Cause] = []
        if isinstance(value, list):
            causes += own(node, value, path) if own is not None else []
            for index, item in enumerate(value if items is not None else ()):
                causes += items(item, f"{path}[{index}]") if items is not None else []
        elif isinstance(value, dict):
            for name, item in value.items() if additional is not None else ():
                causes += additional(item, f"{path}[{name}]") if additional is not None else []
            for name, deeper in members.items():
                if name in value:
                    causes += deeper(value[name], f"{path}.{name}" if path else name)
        return causes

    return check


def _set(node: Node, items: list[Any], path: str) -> list[Cause]:
    return [_duplicate(f"{path}[{index}]", items[index]) for index in _repeated(items)]


def _map(node: Node, items: list[Any], path: str) -> list[Cause]:
    for index, item in enumerate(items):
        if item is not None and not isinstance(item, dict):
            message = f"Invalid value: {shown(item)}: must be an object for an array of list-type map"
            return [Cause("FieldValueInvalid", f"{path}[{index}]", message)]
    keys = [{name: item[name] for name in node.list_map_keys if name in item} if item else {} for item in items]
    return [_duplicate(f"{path}[{index}]", keys[index]) for index in _repeated(keys)]


def _repeated(items: Iterable[Any]) -> list[int]:
    """Where something comes for the second time; the third is not reported again."""
    seen: dict[tuple[type, Any], int] = {}
    repeated = []
    for index, item in enumerate(items):
        key = (type(item), go_json(item) if isinstance(item, (dict, list)) else item)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2:
            repeated.append(index)
    return repeated


def _duplicate(path: str, value: Any) -> Cause:
    return Cause("FieldValueDuplicate", path, f"Duplicate value: {shown(value)}")


_BLOCKING: Final = frozenset(
    ("FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid")
)


class CustomSchema:
    """Of one version of a definition."""

    def __init__(self, schema: Document, *, prunes: bool = True) -> None:
        """``prunes`` is false for the few old definitions with spec.preserveUnknownFields."""
        self._root = read(schema)
        self._validators = validators_of(self._root)
        self._status = self._root.properties.get("status") or Node()
        self._status_validators = validators_of(self._status)
        self._pruner = Pruner(self._root) if prunes else None
        self._fill = filler(self._root)
        self._embedded = walker(self._root)
        self._list_types = checker(self._root)
        self._has_rules = self._root.any("rules")
        self._rules: RuleTree | None = None

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
        rules = self._compiled_rules()
        return causes + (rules.causes(obj, old, root=self._root) if rules is not None else [])

    def _compiled_rules(self) -> RuleTree | None:
        """Compiled when they are first needed: a server may serve many kinds that nobody writes."""
        if self._rules is None:
            from koordinator.cluster.structural_schema.rules import rules_of

            self._rules = rules_of(self._root)
            self._has_rules = self._rules is not None
        return self._rules


# What readers see of an object that was stored before its schema became what it is now.
#
# The real server prunes and defaults whatever it reads. Here an object that is younger than the schema went through it
# when it was written, and is passed on as the bytes that it is; only older ones are decoded, and each of them once.


_REMEMBERED: Final = 20_000
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class StoredForm:
    """From the stored form of a kind to that of one version."""

    def __init__(self, stored: CustomSchema, shown: CustomSchema | None, since: int | None) -> None:
        """``stored`` is the schema of the storage version, ``shown`` that of another one that is read.

        Objects of a revision above ``since`` have the form already; None: no object is sure to.
        """
        self._schema = stored
        self._shown = shown
        self.since = since
        self._known: dict[str, tuple[int, bytes]] = {}
        """Key -> a revision, and what is shown of it."""

    def __call__(self, stored: Stored) -> Stored:
        if not stored.revision or (self.since is not None and stored.revision > self.since):
            return stored
        known = self._known.get(stored.key)
        if known is None or known[0] != stored.revision:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[stored.key] = (stored.revision, self._refreshed(stored.value))
        return Stored(stored.key, known[1], stored.revision)

    def _refreshed(self, value: bytes) -> bytes:
        obj = _decode(value)
        self._schema.refresh(obj)
        if self._shown is not None:
            self._shown.prune(obj)
        refreshed = _encode(obj)
        # Most old objects fit the new schema, and need not be kept twice.
        return value if refreshed == value else refreshed


class ConvertedForm:
    """The same where a webhook converts: only what has the version already is looked at, and nothing is remembered."""

    def __init__(self, schema: CustomSchema, api_version: str, unnamed: str) -> None:
        """``unnamed`` is the version of bytes that name none."""
        self._schema = schema
        self._api_version = api_version
        self._unnamed = unnamed

    def __call__(self, stored: Stored) -> Stored:
        obj = _decode(stored.value)
        if obj.setdefault("apiVersion", self._unnamed) == self._api_version:
            self._schema.refresh(obj)
        return Stored(stored.key, _encode(obj), stored.revision)
