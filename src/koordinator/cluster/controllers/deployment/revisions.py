"""The revisions of a Deployment: which ReplicaSet has its current template, which annotations tell revisions apart, and
which old ReplicaSets are no longer kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from koordinator.api.codec import without_nulls
from koordinator.api.document import Document, copied, same
from koordinator.api.labels import POD_TEMPLATE_HASH
from koordinator.api.meta import LabelSelector, Object, ObjectMeta, OwnerReference
from koordinator.cluster.controllers.deployment.template_hash import template_hash
from koordinator.cluster.controllers.workloads import DEPLOYMENTS, Deployment, ReplicaSet, ReplicaSetSpec

REVISION: Final = "deployment.kubernetes.io/revision"
_HISTORY: Final = "deployment.kubernetes.io/revision-history"
DESIRED_REPLICAS: Final = "deployment.kubernetes.io/desired-replicas"
MAX_REPLICAS: Final = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED: Final = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION,
        _HISTORY,
        DESIRED_REPLICAS,
        MAX_REPLICAS,
        "deprecated.deployment.rollback.to",
    }
)
_LONGEST_HISTORY: Final = 2000
"""Characters of the annotation; the oldest revisions are dropped."""
_UNLIMITED: Final = 2**31 - 1
_FIRST: Final = datetime.min.replace(tzinfo=UTC)


def by_age(replica_sets: Iterable[ReplicaSet]) -> list[ReplicaSet]:
    """The oldest first."""
    return sorted(replica_sets, key=lambda each: (_created(each), each.metadata.name))


def find_new(deployment: Deployment, replica_sets: Iterable[ReplicaSet]) -> ReplicaSet | None:
    """The ReplicaSet with the current template; of several the oldest, as the others may be left-overs."""
    template = _comparable(deployment.spec.template)
    found = (each for each in by_age(replica_sets) if same(_comparable(each.spec.template), template))
    return next(found, None)


def revision_of(obj: Object) -> int:
    """The number in the annotation; 0 if there is none that can be read."""
    text = obj.metadata.annotations.get(REVISION, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def next_revision(old: Iterable[ReplicaSet]) -> int:
    """The number of the revision that comes after those of ``old``."""
    return max(map(revision_of, old), default=0) + 1


def with_revision(replica_set: ReplicaSet, deployment: Deployment, revision: int) -> ReplicaSet:
    """The new ReplicaSet with the annotations of the Deployment and at least this revision. A revision that it had
    before, because the Deployment is rolled back to it, becomes history."""
    annotations = replica_set.metadata.annotations | copied_annotations(deployment)
    before = revision_of(replica_set)
    if before < revision:
        annotations[REVISION] = str(revision)
        if REVISION in replica_set.metadata.annotations:
            annotations[_HISTORY] = _history(annotations.get(_HISTORY, ""), str(before))
    return annotated(replica_set, annotations)


def copied_annotations(deployment: Deployment) -> dict[str, str]:
    """The annotations that ReplicaSets get, too."""
    return {name: text for name, text in deployment.metadata.annotations.items() if name not in _NOT_COPIED}


def annotated(replica_set: ReplicaSet, annotations: Mapping[str, str]) -> ReplicaSet:
    """The ReplicaSet with exactly these annotations."""
    if annotations == replica_set.metadata.annotations:
        return replica_set
    metadata = msgspec.structs.replace(replica_set.metadata, annotations=dict(annotations))
    return msgspec.structs.replace(replica_set, metadata=metadata)


def new_replica_set(deployment: Deployment, revision: int) -> ReplicaSet:
    """The ReplicaSet for the current template, to be created; without pods so far."""
    spec, owner = deployment.spec, deployment.metadata
    template = copied(spec.template)
    digest = template_hash(template, deployment.status.collision_count)
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    labels[POD_TEMPLATE_HASH] = digest
    selector = spec.selector or LabelSelector()
    selected = {**selector.match_labels, POD_TEMPLATE_HASH: digest}
    reference = OwnerReference(
        api_version=DEPLOYMENTS.api_version,
        kind=DEPLOYMENTS.name,
        name=owner.name,
        uid=owner.uid,
        controller=True,
        block_owner_deletion=True,
    )
    return ReplicaSet(
        metadata=ObjectMeta(
            name=f"{owner.name}-{digest}",
            namespace=owner.namespace,
            labels=dict(labels),
            annotations={**copied_annotations(deployment), REVISION: str(revision)},
            owner_references=(reference,),
        ),
        spec=ReplicaSetSpec(
            replicas=0,
            min_ready_seconds=spec.min_ready_seconds,
            selector=msgspec.structs.replace(selector, match_labels=selected),
            template=template,
        ),
    )


def has_template_of(replica_set: ReplicaSet, deployment: Deployment) -> bool:
    """Whether the pods of the one are those that the other wants."""
    return same(_comparable(replica_set.spec.template), _comparable(deployment.spec.template))


def no_longer_kept(deployment: Deployment, old: Sequence[ReplicaSet]) -> list[ReplicaSet]:
    """The old ReplicaSets beyond the history limit, the earliest revisions, as far as they have no pods."""
    limit = deployment.spec.revision_history_limit
    if limit is None or limit == _UNLIMITED:
        return []
    there = [each for each in old if each.metadata.deletion_timestamp is None]
    surplus = len(there) - limit
    earliest = sorted(there, key=lambda each: (revision_of(each), _created(each)))[: max(surplus, 0)]
    return [each for each in earliest if _is_idle(each)]


def _is_idle(replica_set: ReplicaSet) -> bool:
    has_seen = replica_set.metadata.generation <= replica_set.status.observed_generation
    return has_seen and replica_set.wanted == 0 and replica_set.status.replicas == 0


def _comparable(template: Document) -> Document:
    metadata = template.get("metadata") or {}
    labels = {name: text for name, text in (metadata.get("labels") or {}).items() if name != POD_TEMPLATE_HASH}
    kept: Document = without_nulls({**template, "metadata": {**metadata, "labels": labels}})
    return kept


def _history(before: str, revision: str) -> str:
    revisions = [*filter(None, before.split(",")), revision]
    while len(revisions) > 1 and len(",".join(revisions)) > _LONGEST_HISTORY:
        del revisions[0]
    return ",".join(revisions)


def _created(replica_set: ReplicaSet) -> datetime:
    return replica_set.metadata.creation_timestamp or _FIRST
