"""The strategy of a built-in kind: the order of steps is the same for all, and families override single steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import cache, cached_property
from typing import Any, Final

from koordinator.api.document import Document, same
from koordinator.api.kubernetes_types.canonical import WrongType, canonicalize
from koordinator.api.kubernetes_types.table import ObjectType, Shape, Type, kind_type
from koordinator.api.kubernetes_types.unknown_fields import unknown_fields
from koordinator.api.names import NameCheck, dns_subdomain
from koordinator.cluster.errors import bad_request
from koordinator.cluster.resource import Cause, Column, RequestContext
from koordinator.cluster.strategy.metadata import (
    drop_repeated_owners,
    keep_system_metadata,
    kept_by_status,
    take_over,
    validate_core_finalizers,
    validate_metadata,
)
from koordinator.cluster.strategy.rules import Check
from koordinator.cluster.strategy.status_rules import check_counts
from koordinator.cluster.strategy.table import NAME_AND_AGE, Table

FieldLabels = Mapping[str, Callable[[Document], str]]


class ObjectStrategy:
    """Defaults by type, status kept apart from spec, generation counted, metadata checked."""

    def __init__(
        self,
        api_version: str,
        kind: str,
        *,
        namespaced: bool = True,
        name_check: NameCheck = dns_subdomain,
        table: Table = NAME_AND_AGE,
        generation: bool = False,
        status: bool = False,
        field_labels: FieldLabels | None = None,
        check: Check | None = None,
    ) -> None:
        """``generation``: metadata.generation counts changes of the spec. ``status``: has a status subresource.
        ``check`` says what is wrong outside of metadata."""
        object_type = kind_type(api_version, kind)
        assert object_type is not None, f"no table of {api_version} {kind}"
        self._type: ObjectType = object_type
        self._api_version = api_version
        self._kind = kind
        self._namespaced = namespaced
        self._name_check = name_check
        self._table = table
        self._generation = generation
        self._status = status
        self._field_labels = field_labels or {}
        self._check = check

    def decode(self, obj: Document, old: Document | None = None) -> None:
        # Most patches leave the spec or the status alone, which is most of the work.
        shared = [] if old is None else [name for name in obj if _is_shared(name, obj, old)]
        self._canonicalize(obj, shared)
        apply_defaults(obj, self._type, shared)

    def prepare_create(self, obj: Document, context: RequestContext) -> None:
        if self._status:
            take_over(obj, self._zero, "status")
        drop_repeated_owners(obj, context.warnings)
        obj["metadata"].pop("generation", None)
        if self._generation:
            obj["metadata"]["generation"] = 1
        self.initialize(obj, context)

    def prepare_update(self, obj: Document, old: Document, context: RequestContext) -> None:
        drop_repeated_owners(obj, context.warnings)
        keep_system_metadata(obj, old)
        if self._status:
            take_over(obj, old, "status")
        self.carry_over(obj, old, context)
        if self._generation and not same(self.desired(obj), self.desired(old)):
            obj["metadata"]["generation"] = (old["metadata"].get("generation") or 0) + 1

    def prepare_status_update(self, obj: Document, old: Document, context: RequestContext) -> None:
        for name in (set(obj) | set(old)) - {"status", "metadata", "apiVersion", "kind"}:
            take_over(obj, old, name)
        keep_system_metadata(obj, old)
        self.keep_metadata_on_status_update(obj, old)

    def validate(self, obj: Document, old: Document | None) -> list[Cause]:
        causes = validate_metadata(obj, old, self._namespaced, self._name_check)
        if old is None:
            causes += validate_core_finalizers(obj)
        return causes + self.check(obj, old)

    def validate_status(self, obj: Document, old: Document) -> list[Cause]:
        return self.validate(obj, old) + check_counts(self._kind, obj, old)

    def unknown_fields(self, obj: Document, old: Document | None = None) -> list[str]:
        return unknown_fields(obj, self._type)

    def columns(self) -> Sequence[Column]:
        return self._table.columns

    def row(self, obj: Document, now: datetime) -> list[Any]:
        return self._table.row(obj, now)

    def fields(self, obj: Document) -> Mapping[str, str]:
        metadata = obj.get("metadata") or {}
        labels = {"metadata.name": metadata.get("name") or ""}
        if self._namespaced:
            labels["metadata.namespace"] = metadata.get("namespace") or ""
        labels.update((label, read(obj)) for label, read in self._field_labels.items())
        return labels

    def convert(self, obj: Document) -> None:
        """What the real server reads further when it converts from the client's version. Raises WrongType."""

    def initialize(self, obj: Document, context: RequestContext) -> None:
        """What the server alone sets on a new object, once admission is done with it."""

    def carry_over(self, obj: Document, old: Document, context: RequestContext) -> None:
        """What an update takes from the object that it replaces, and what follows from the change."""

    def keep_metadata_on_status_update(self, obj: Document, old: Document) -> None:
        """Most kinds take labels, annotations and finalizers from whoever writes their status."""
        before = old["metadata"]
        for path in kept_by_status(self._api_version, self._kind):
            holder, _, name = path.partition(".")
            names = (name,) if name else (set(obj["metadata"]) | set(before)) - {"resourceVersion", "managedFields"}
            for each in names if holder == "metadata" else ():
                take_over(obj["metadata"], before, each)

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        """What is wrong outside of metadata."""
        return self._check(obj, old) if self._check is not None else []

    def desired(self, obj: Document) -> Any:
        """The part whose change counts in metadata.generation."""
        return {key: value for key, value in obj.items() if key not in ("metadata", "status", "apiVersion", "kind")}

    @cached_property
    def _zero(self) -> Document:
        """What an object of the kind is without anything in it."""
        zero: Document = {}
        canonicalize(zero, self._type)
        apply_defaults(zero, self._type)
        return zero

    def _canonicalize(self, obj: Document, canonical: Sequence[str]) -> None:
        try:
            canonicalize(obj, self._type, canonical)
            self.convert(obj)
        except WrongType as error:
            version = self._api_version.rpartition("/")[2]
            message = f'{self._kind} in version "{version}" cannot be handled as a {self._kind}: {error}'
            raise bad_request(message) from error


def _is_shared(name: str, obj: Document, old: Document) -> bool:
    """Whether both have the very same value there."""
    value = obj[name]
    return value is not None and value is old.get(name)


# Applies the defaults of Kubernetes' types wherever the types occur: a container is one in a pod and in a job.
#
# Each family of kinds registers what one type's defaults are; the walk finds the places from the table of types.
# Parents come before what they hold, as in the real server's generated defaulters.


TypeDefaults = Callable[[Document], None]

_REGISTERED: Final[dict[str, TypeDefaults]] = {}


def defaults_of(type_name: str) -> Callable[[TypeDefaults], TypeDefaults]:
    """Register the defaults of one type, named as in the table: ``io.k8s.api.core.v1.Container``."""

    def register(function: TypeDefaults) -> TypeDefaults:
        assert type_name not in _REGISTERED
        _REGISTERED[type_name] = function
        return function

    return register


def default_each(obj: Document, name: str, value: Any) -> None:
    """Set a field that is absent or zero."""
    if not obj.get(name):
        obj[name] = value


def apply_defaults(document: Document, of: ObjectType, filled: Collection[str] = ()) -> None:
    """Fill in the defaults of a canonical document, in place. ``filled`` names members that have theirs already."""
    defaults = _REGISTERED.get(of.name)
    if defaults is not None:
        defaults(document)
    for name, type_ in _places(of):
        value = document.get(name)
        if value is not None and name not in filled:
            _descend(value, type_)


def _descend(value: Any, type_: Type) -> None:
    if type_.shape is Shape.OBJECT:
        apply_defaults(value, type_.members)
    elif type_.of.shape is Shape.OBJECT:
        for item in value if type_.shape is Shape.LIST else value.values():
            apply_defaults(item, type_.of.members)
    else:
        for item in value if type_.shape is Shape.LIST else value.values():
            _descend(item, type_.of)


@cache
def _places(of: ObjectType) -> tuple[tuple[str, Type], ...]:
    """The fields below which something has defaults; the others are not walked."""
    return tuple((field.name, field.type) for field in of.fields.values() if _reaches(field.type, frozenset({of.name})))


def _reaches(type_: Type, seen: frozenset[str]) -> bool:
    while type_.element is not None:
        type_ = type_.element
    if type_.shape is not Shape.OBJECT or type_.name in seen:
        return False
    if type_.name in _REGISTERED:
        return True
    inner = seen | {type_.name}
    return any(_reaches(field.type, inner) for field in type_.members.fields.values())
