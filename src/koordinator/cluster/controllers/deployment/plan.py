"""What is to be written for a Deployment: one step, decided on all that it owns, without any I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.controllers.conditions import find_condition
from koordinator.cluster.controllers.deployment.revisions import (
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    REVISION,
    annotated,
    find_new,
    new_replica_set,
    next_revision,
    no_longer_kept,
    with_revision,
)
from koordinator.cluster.controllers.deployment.sizes import (
    RECREATE,
    Fleet,
    Sizes,
    is_scaling,
    most_replicas,
    new_size,
    recreate,
    rolling_update,
    scaled,
)
from koordinator.cluster.controllers.deployment.status import (
    NEW_CREATED,
    NEW_FOUND,
    PROGRESSING,
    counted,
    deadline_in,
    has_deadline,
    is_complete,
    progressing,
    rolled_out,
    with_pause,
    with_progress,
)
from koordinator.cluster.controllers.workloads import Deployment, DeploymentStatus, ReplicaSet


@dataclass(frozen=True, slots=True)
class Situation:
    """A Deployment and what it owns."""

    deployment: Deployment
    replica_sets: Sequence[ReplicaSet]
    occupied: Collection[str]
    """The UIDs of the ReplicaSets of which pods have not ended; those may be deleted already."""


@dataclass(frozen=True, slots=True)
class Plan:
    """In the order in which it is to be written. If one write fails, the ones after it are not made."""

    created: ReplicaSet | None
    changed: Sequence[tuple[ReplicaSet, ReplicaSet]]
    """As they are and as they should be, in size and annotations."""
    deleted: Sequence[ReplicaSet]
    revision: str
    """For the annotation of the Deployment; empty if that stays."""
    status: DeploymentStatus
    again: float | None
    """After how many seconds to plan anew if nothing happens before."""


def plan(seen: Situation, now: datetime) -> Plan:
    """The next step of a Deployment towards what its spec says."""
    deployment = with_pause(seen.deployment, now)
    is_leaving = deployment.metadata.deletion_timestamp is not None
    fleet = _current_fleet(deployment, seen.replica_sets)
    if is_leaving or deployment.spec.paused or is_scaling(deployment, fleet):
        deployment = _with_found(deployment, fleet, now)
        if not is_leaving:
            fleet = _resized(deployment, fleet, scaled(deployment, fleet), everyone=is_scaling(deployment, fleet))
        status = counted(deployment, fleet, now)
        is_cleaned = deployment.spec.paused and not is_leaving
        return _plan(seen, fleet, status, no_longer_kept(deployment, fleet.old) if is_cleaned else [], now)
    others = {each.metadata.uid for each in fleet.old}
    old_pods_run = not others.isdisjoint(seen.occupied)
    if fleet.new is None and _may_create(deployment, fleet, old_pods_run=old_pods_run):
        fleet, deployment = _with_created(deployment, fleet, now)
    else:
        deployment = _with_found(deployment, fleet, now)
    sizes = _step(deployment, fleet, old_pods_run=old_pods_run)
    fleet = _resized(deployment, fleet, sizes)
    is_done = not sizes and is_complete(deployment, deployment.status)
    deleted = no_longer_kept(deployment, fleet.old) if is_done else []
    return _plan(seen, fleet, rolled_out(deployment, fleet, now), deleted, now)


def _current_fleet(deployment: Deployment, replica_sets: Sequence[ReplicaSet]) -> Fleet:
    """The new ReplicaSet has the latest revision and the annotations of the Deployment."""
    new = find_new(deployment, replica_sets)
    old = [each for each in replica_sets if new is None or each.metadata.uid != new.metadata.uid]
    if new is None:
        return Fleet(None, old)
    new = with_revision(new, deployment, next_revision(old))
    if new.spec.min_ready_seconds != deployment.spec.min_ready_seconds:
        spec = msgspec.structs.replace(new.spec, min_ready_seconds=deployment.spec.min_ready_seconds)
        new = msgspec.structs.replace(new, spec=spec)
    return Fleet(new, old)


def _may_create(deployment: Deployment, fleet: Fleet, *, old_pods_run: bool) -> bool:
    if deployment.spec.strategy.type != RECREATE:
        return True
    return not old_pods_run and not any(each.wanted for each in fleet.old)


def _step(deployment: Deployment, fleet: Fleet, *, old_pods_run: bool) -> Sizes:
    if deployment.spec.strategy.type == RECREATE:
        return recreate(deployment, fleet, old_pods_run=old_pods_run)
    return rolling_update(deployment, fleet)


def _with_created(deployment: Deployment, fleet: Fleet, now: datetime) -> tuple[Fleet, Deployment]:
    made = new_replica_set(deployment, next_revision(fleet.old))
    made = _of_size(made, new_size(deployment, fleet, 0), deployment)
    if has_deadline(deployment):
        message = f'Created new replica set "{made.metadata.name}"'
        deployment = with_progress(deployment, progressing("True", NEW_CREATED, message, now))
    return replace(fleet, new=made), deployment


def _with_found(deployment: Deployment, fleet: Fleet, now: datetime) -> Deployment:
    """Whoever asks for progress only now gets a beginning of it."""
    is_new = find_condition(deployment.status.conditions, PROGRESSING) is None
    if fleet.new is None or not is_new or not has_deadline(deployment):
        return deployment
    message = f'Found new replica set "{fleet.new.metadata.name}"'
    return with_progress(deployment, progressing("True", NEW_FOUND, message, now))


def _resized(deployment: Deployment, fleet: Fleet, sizes: Sizes, *, everyone: bool = False) -> Fleet:
    """The fleet with these sizes. ``everyone``: those with other sizes note the number of replicas, too."""

    def resized(each: ReplicaSet) -> ReplicaSet:
        name = each.metadata.name
        if name in sizes or (everyone and each.wanted > 0):
            return _of_size(each, sizes.get(name, each.wanted), deployment)
        return each

    return Fleet(resized(fleet.new) if fleet.new is not None else None, [resized(each) for each in fleet.old])


def _of_size(replica_set: ReplicaSet, size: int, deployment: Deployment) -> ReplicaSet:
    numbers = {DESIRED_REPLICAS: str(deployment.wanted), MAX_REPLICAS: str(most_replicas(deployment))}
    spec = msgspec.structs.replace(replica_set.spec, replicas=size)
    resized = msgspec.structs.replace(replica_set, spec=spec)
    return annotated(resized, {**replica_set.metadata.annotations, **numbers})


def _plan(
    seen: Situation, fleet: Fleet, status: DeploymentStatus, deleted: Sequence[ReplicaSet], now: datetime
) -> Plan:
    before: Mapping[str, ReplicaSet] = {each.metadata.uid: each for each in seen.replica_sets}
    new = fleet.new
    gone = {each.metadata.uid for each in deleted}
    is_leaving = seen.deployment.metadata.deletion_timestamp is not None
    pairs = [(before[each.metadata.uid], each) for each in fleet.all if each.metadata.uid]
    revision = new.metadata.annotations.get(REVISION, "") if new is not None else ""
    return Plan(
        created=new if new is not None and not new.metadata.uid else None,
        changed=[(old, each) for old, each in pairs if old is not each and each.metadata.uid not in gone],
        deleted=deleted,
        revision=revision if revision != seen.deployment.metadata.annotations.get(REVISION) else "",
        status=status,
        again=None if is_leaving else deadline_in(seen.deployment, status, now),
    )


def replica_set_patch(before: ReplicaSet, after: ReplicaSet) -> Document | None:
    """A merge patch of the size, the annotations and the time until a pod is available; None if all are the same. It
    is for exactly the version ``before``: two decisions on one state must not add up."""
    spec: Document = {}
    if before.wanted != after.wanted:
        spec["replicas"] = after.wanted
    if before.spec.min_ready_seconds != after.spec.min_ready_seconds:
        spec["minReadySeconds"] = after.spec.min_ready_seconds
    known = before.metadata.annotations
    annotations = {name: text for name, text in after.metadata.annotations.items() if known.get(name) != text}
    if not spec and not annotations:
        return None
    metadata: Document = {"resourceVersion": before.metadata.resource_version}
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, **({"spec": spec} if spec else {})}
