"""One elastic quota in the tree: spec, labels and annotations of an ElasticQuota, decoded once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeVar

from koordinator.api.annotations import QUOTA_GUARANTEED, QUOTA_NAMESPACES
from koordinator.api.codec import DecodeError
from koordinator.api.elastic_quota import ROOT_QUOTA, ElasticQuota
from koordinator.api.labels import (
    QUOTA_ALLOW_FORCE_UPDATE,
    QUOTA_ALLOW_LENT_RESOURCE,
    QUOTA_IS_PARENT,
    QUOTA_IS_ROOT,
    QUOTA_PARENT,
    QUOTA_TREE_ID,
)
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import ResourceList
from koordinator.model.quota_tree.annotation_values import read_amounts, read_names

T = TypeVar("T")
_LAST: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Shape:
    """The fields in which parent and child have to agree; most children of one parent have the same."""

    tree: str
    max: frozenset[str]
    min: frozenset[str]


@dataclass(frozen=True, slots=True)
class Quota:
    """Immutable; a changed ElasticQuota is another Quota."""

    name: str
    namespace: str
    created: datetime
    """If two quotas have one name, the older counts."""
    parent: str
    """The root's name for those at the top; empty for the root itself."""
    tree: str
    is_parent: bool
    is_tree_root: bool
    allows_lending: bool
    allows_force_update: bool
    max: ResourceList
    """The maximum of use, borrowed resources included."""
    min: ResourceList
    """Guaranteed to its pods whenever they request it."""
    guaranteed: ResourceList
    namespaces: tuple[str, ...]
    """Namespaces whose pods count here unless they name a quota."""

    @classmethod
    def of(cls, wire: ElasticQuota) -> Quota:
        """Make a Quota; annotations that cannot be decoded count as absent."""
        metadata, labels = wire.metadata, wire.metadata.labels
        return cls(
            name=metadata.name,
            namespace=metadata.namespace,
            created=metadata.creation_timestamp or _LAST,
            parent=parent_of(metadata),
            tree=labels.get(QUOTA_TREE_ID, ""),
            is_parent=labels.get(QUOTA_IS_PARENT) == "true",
            is_tree_root=labels.get(QUOTA_IS_ROOT) == "true",
            allows_lending=labels.get(QUOTA_ALLOW_LENT_RESOURCE) != "false",
            allows_force_update=labels.get(QUOTA_ALLOW_FORCE_UPDATE) == "true",
            max=wire.spec.max,
            min=wire.spec.min,
            guaranteed=_annotated(metadata, QUOTA_GUARANTEED, read_amounts, {}),
            namespaces=tuple(_annotated(metadata, QUOTA_NAMESPACES, read_names, [])),
        )

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def shape(self) -> Shape:
        return Shape(self.tree, frozenset(self.max), frozenset(self.min))

    @property
    def rank(self) -> tuple[datetime, str]:
        """The lowest takes precedence wherever several quotas compete."""
        return (self.created, self.key)


def parent_of(metadata: ObjectMeta) -> str:
    parent = metadata.labels.get(QUOTA_PARENT, "")
    return ROOT_QUOTA if not parent and metadata.name != ROOT_QUOTA else parent


def _annotated(metadata: ObjectMeta, annotation: str, read: Callable[[str], T], absent: T) -> T:
    try:
        return read(metadata.annotations.get(annotation, ""))
    except DecodeError:
        return absent
