"""What the embedded API knows of one kind of object, and what each kind may say about its own objects.

The verbs are written once, over plain JSON documents; everything that differs between kinds (defaults, what an
update may change, table columns) is a ``Strategy``. CustomResourceDefinitions become ``Resource`` values at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.access.identity import ADMIN, User
from koordinator.cluster.storage.interface import Stored

if TYPE_CHECKING:
    # At run time the types of fields import what is said here.
    from koordinator.cluster.managed_fields.schema import Atom
    from koordinator.cluster.verbs.target import StoredObjects

VIEWS = ("approval", "ephemeralcontainers", "finalize", "resize", "scale", "status")
"""Subresources that are read and changed like objects; all others are actions."""
ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
"""What discovery says of an ordinary kind."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that is wrong with an object, as ``Status.details.causes`` reports it."""

    reason: str
    """FieldValueRequired, FieldValueInvalid, FieldValueForbidden, FieldValueNotSupported, FieldValueDuplicate …"""
    field: str
    """The path of the field, such as ``spec.containers[0].name``."""
    message: str
    """What kubectl prints after the path, in the real server's wording: ``Required value``."""
    tolerated: bool = False
    """It was wrong before and is unchanged: the client is warned, and the object is stored."""

    @property
    def text(self) -> str:
        return f"{self.field}: {self.message}"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of ``kubectl get``."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    """0 is always shown; 1 only with ``-o wide``."""


class RequestContext(msgspec.Struct, frozen=True, eq=False):
    """What a strategy may know about the request beside the object. ``lookup`` reads another object or None."""

    now: datetime
    lookup: Callable[[str, str, str | None, str], Document | None]
    """(group, plural, namespace, name) -> object; for example the PriorityClass that a pod names."""
    list_objects: Callable[..., StoredObjects]
    """(group, plural, namespace=None) -> every object of a kind, or those of a namespace."""
    user: User = ADMIN
    warnings: list[str] = msgspec.field(default_factory=list)
    """Texts for the Warning header."""


class Strategy(Protocol):
    """Pure: changes the document that it is given and nothing else. All but ``decode`` and ``unknown_fields`` are given
    objects that are decoded."""

    def decode(self, obj: Document, old: Document | None = None) -> None:
        """Give what a client sent the real server's form: canonical values and defaults. Raises ApiError 400.

        Members that ``obj`` shares with ``old``, which is stored, have that form."""
        ...

    def prepare_create(self, obj: Document, context: RequestContext) -> None:
        """Drop what a creator may not set (usually status) and fill in the defaults that the real server sets."""
        ...

    def prepare_update(self, obj: Document, old: Document, context: RequestContext) -> None:
        """Keep what this verb may not change (usually status), fill in defaults, count ``metadata.generation``."""
        ...

    def prepare_status_update(self, obj: Document, old: Document, context: RequestContext) -> None:
        """Take over from ``obj`` only what the status subresource may change; all else stays as in ``old``."""
        ...

    def validate(self, obj: Document, old: Document | None) -> list[Cause]:
        """Everything that is wrong, with paths; ``old`` is None on create."""
        ...

    def validate_status(self, obj: Document, old: Document) -> list[Cause]:
        """The same for an update of the status subresource."""
        ...

    def unknown_fields(self, obj: Document, old: Document | None = None) -> list[str]:
        """Paths of the fields that the kind does not have, of an object as a client sent it, or patched ``old``."""
        ...

    def columns(self) -> Sequence[Column]:
        """The columns of the kind's table."""
        ...

    def row(self, obj: Document, now: datetime) -> list[Any]:
        """The cells of one object, one for each column."""
        ...

    def fields(self, obj: Document) -> Mapping[str, str]:
        """Field label -> value, for field selectors; ``metadata.name`` and ``metadata.namespace`` are always there."""
        ...


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where an object keeps what its ``scale`` subresource shows."""

    replicas: tuple[str, ...] = ("spec", "replicas")
    status_replicas: tuple[str, ...] = ("status", "replicas")
    selector: tuple[str, ...] = ("spec", "selector")
    """A selector as text, as labels or as a LabelSelector; empty when there is none."""
    custom: bool = False
    """Of a custom resource: other rules and words hold for its replicas."""


class View(msgspec.Struct, frozen=True):
    """A subresource that shows the whole object and changes a part of it; status and scale are none of these."""

    prepare: Callable[[Document, Document, RequestContext], None]
    """(new, old, context): takes over from the new object what may change, as ``Strategy.prepare_update`` does."""
    validate: Callable[[Document, Any], list[Cause]] | None = None
    """(new, old) -> what is wrong; None where the kind's own rules hold."""


class Conversion(Protocol):
    """How the versions of a custom resource become each other where they differ in more than their name."""

    async def convert(self, objects: Sequence[Document], api_version: str) -> list[Document]:
        """Each in that version, in the same order. Raises ApiError 500."""
        ...


class CurrentForm(Protocol):
    """Gives what was stored under an older schema the form that a view of it has now."""

    @property
    def since(self) -> int | None:
        """Objects of a revision above it have the form already; None: no object is sure to."""
        ...

    def __call__(self, stored: Stored) -> Stored: ...


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """A served kind: ``/apis/GROUP/VERSION/[namespaces/NS/]PLURAL`` (``/api/v1/…`` for the core group)."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    strategy: Strategy
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    """``status``, ``binding``, ``eviction``, ``scale`` …"""
    scale: ScalePaths | None = None
    """For kinds with the ``scale`` subresource."""
    views: Mapping[str, View] = field(default_factory=dict, compare=False)
    """By the name of the subresource."""
    storage_version: bool = True
    """One served version of a group and plural is the stored one; the others share its objects."""
    schema: Document | None = None
    """openAPIV3Schema of a custom resource; None for built-in kinds."""
    graceful_deletion: bool = False
    """True for pods: deletion first sets deletionTimestamp and waits for the kubelet to confirm."""
    returns_deleted: bool = False
    """Whether a deletion answers with the object that is gone, and not with a Status that names it."""
    verbs: tuple[str, ...] = ALL_VERBS
    """``("create",)`` for what is only evaluated and never stored, such as access reviews; ``("get", "list")`` for what
    is computed for each request, such as pod metrics. Everything else can be watched."""
    unconditional_update: bool = True
    """Whether an update without a resourceVersion overwrites; custom resources and leases insist on one."""
    storage_group: str | None = None
    """Another group under which the objects of this plural are kept: events.k8s.io shows the events of core."""
    to_stored: Callable[[Document], Document] | None = None
    """From this view's form to the stored one; None when they differ in ``apiVersion`` alone."""
    from_stored: Callable[[Document], Document] | None = None
    atom: Atom | None = None
    """The type of a custom resource, for server-side apply; that of a built-in kind is in the table of types."""
    current: CurrentForm | None = None
    """None where there is no schema."""
    stored_as: str = ""
    """The apiVersion of the stored form, which the bytes name where there are several versions; empty for others."""
    conversion: Conversion | None = None
    """None where all versions have the same form, as those of built-in kinds have by ``to_stored`` at least."""

    api_version: str = field(init=False)
    prefix: str = field(init=False)
    """``/GROUP/PLURAL/``, under which all objects are stored; ``core`` stands for the empty group."""

    def __post_init__(self) -> None:
        # Every request asks for both, several times.
        group = self.group if self.storage_group is None else self.storage_group
        object.__setattr__(self, "api_version", f"{self.group}/{self.version}" if self.group else self.version)
        object.__setattr__(self, "prefix", f"/{group or 'core'}/{self.plural}/")

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"


# Which kinds are served now: the built-in ones and those that CustomResourceDefinitions add at run time.


class _StoredVersions(dict[tuple[str, str], "Resource | None"]):
    """(group, plural) -> the version of a kind that its objects are stored as, found when it is first asked for."""

    def __init__(self, served: Mapping[tuple[str, str, str], Resource]) -> None:
        self._served = served

    def __missing__(self, key: tuple[str, str]) -> Resource | None:
        versions = [each for each in self._served.values() if (each.group, each.plural) == key]
        found = next((each for each in versions if each.storage_version), versions[0] if versions else None)
        self[key] = found
        return found


class Registry:
    """Resources in the order in which discovery lists them."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self.served: dict[tuple[str, str, str], Resource] = {}
        """By group, version and plural; changed by ``add`` and ``remove`` alone."""
        self.stored = _StoredVersions(self.served)
        self.derived: dict[Any, Any] = {}
        """What others have worked out of what is served, until that changes."""
        self.generation = 0
        """Changes whenever what is served does."""
        for resource in resources:
            self.add(resource)
        self._built_in = frozenset((group, plural) for group, _, plural in self.served)

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self.served.values()))

    def add(self, resource: Resource) -> None:
        self.served[resource.group, resource.version, resource.plural] = resource
        self._changed()

    def remove(self, group: str, plural: str) -> None:
        """Stop serving every version."""
        for key in [key for key in self.served if key[0] == group and key[2] == plural]:
            del self.served[key]
        self._changed()

    def is_built_in(self, group: str, plural: str) -> bool:
        """Served from the start; no definition may take such a name over."""
        return (group, plural) in self._built_in

    def groups(self) -> dict[str, list[str]]:
        """Group -> versions, the preferred one first; the core group is empty."""
        groups: dict[str, list[str]] = {}
        for group, version, _ in self.served:
            versions = groups.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return {group: sorted(versions, key=_version_rank) for group, versions in groups.items()}

    def in_version(self, group: str, version: str) -> list[Resource]:
        """By name, as the real server lists them; kubectl prints several kinds in this order."""
        found = [r for r in self.served.values() if r.group == group and r.version == version]
        return sorted(found, key=lambda resource: resource.plural)

    def _changed(self) -> None:
        self.stored.clear()
        self.derived.clear()
        self.generation += 1


def _version_rank(version: str) -> tuple[int, int, int, str]:
    """Kubernetes' order: v10, v2, v1, v11beta2, v10beta3, v3beta1, v12alpha1, foo1."""
    body = version.removeprefix("v")
    for rank, stage in enumerate(("", "beta", "alpha")):
        major, separator, minor = body.partition(stage) if stage else (body, "", "0")
        if version.startswith("v") and bool(separator) == bool(stage) and major.isdigit() and minor.isdigit():
            return (rank, -int(major), -int(minor), version)
    return (3, 0, 0, version)
