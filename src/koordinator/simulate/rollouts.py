"""Brings the pods of a workload to what its spec says: by the plans of the workload's own controller, step by step,
while the new pods get nodes.

A rollout that does not fit beside the old pods stops halfway, in a simulation as on a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from koordinator.api.batch import finished_condition
from koordinator.api.codec import to_document
from koordinator.api.document import Document
from koordinator.api.kinds import JOBS, Kind
from koordinator.api.pod import Pod, is_finished
from koordinator.cluster.controllers.deployment.plan import Plan, Situation, plan, replica_set_patch
from koordinator.cluster.controllers.deployment.revisions import find_new
from koordinator.cluster.controllers.job.assessment import assess
from koordinator.cluster.controllers.job.backoff import Backoff
from koordinator.cluster.controllers.job.new_pod import new_pod
from koordinator.cluster.controllers.job.pod_plan import plan_pods
from koordinator.cluster.controllers.pod_control import pod_of
from koordinator.cluster.controllers.pod_state import is_active
from koordinator.cluster.controllers.replica_set.deletion_order import pods_to_delete
from koordinator.cluster.controllers.replica_set.status import Observation, new_status
from koordinator.cluster.controllers.stateful_set.types import STATEFUL_SETS
from koordinator.cluster.controllers.workloads import (
    DEPLOYMENTS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    Deployment,
    ReplicaSet,
    Replicated,
)
from koordinator.cluster.patch import apply_merge_patch
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.target import Target
from koordinator.cluster.verbs.update import modify
from koordinator.simulate.simulated_cluster import SimulatedCluster
from koordinator.simulate.stateful_sets import StatefulSetRollout
from koordinator.simulate.workloads import PodWrites, WorkloadName, Workloads

R = TypeVar("R", bound=Replicated)


async def follow(cluster: SimulatedCluster, workload: WorkloadName, before: Document | None = None) -> str:
    """Act as the controller of the workload until it has nothing to do. ``before``: the workload before its last
    change. Returns why it does not get what its spec says, if a quota or a lack of nodes is in its way; empty else.
    Raises ApiError for pods that cannot be created at all, and ChangeError."""
    if workload.kind.name == DEPLOYMENTS.name:
        return await _follow_deployment(cluster, workload)
    if workload.kind.name == STATEFUL_SETS.name:
        return await StatefulSetRollout(cluster, workload, before).run()
    if workload.kind.name == JOBS.name:
        return await _follow_job(cluster, workload)
    if workload.kind.name == REPLICA_SETS.name:
        return await _follow_replicas(cluster, workload, REPLICA_SETS)
    return await _follow_replicas(cluster, workload, REPLICATION_CONTROLLERS)


async def _follow_replicas(cluster: SimulatedCluster, workload: WorkloadName, kind: Kind[R]) -> str:
    workloads, writes = Workloads(cluster), PodWrites(cluster, workload)
    owner = workloads.typed(kind, workloads.get(workload))
    uid = owner.metadata.uid
    active = [pod for pod in workloads.pods_of(workload.namespace, uid)[uid] if is_active(pod)]
    await _scale(writes, kind, owner, active, active, cluster.clock.now())
    return writes.refusal


async def _scale(
    writes: PodWrites, kind: Kind[R], owner: R, active: Sequence[Pod], related: Sequence[Pod], now: datetime
) -> None:
    """Create or delete pods until there are as many as wanted. ``related``: the active pods of the same workload."""
    missing = owner.wanted - len(active)
    await writes.create(owner.metadata.namespace, [pod_of(kind, owner, owner.spec.template) for _ in range(missing)])
    if missing < 0:
        await writes.delete(pods_to_delete(active, related, -missing, now))


async def _follow_job(cluster: SimulatedCluster, workload: WorkloadName) -> str:
    workloads = Workloads(cluster)
    job = workloads.typed(JOBS, workloads.get(workload))
    while finished_condition(job) is None:
        writes, now = PodWrites(cluster, workload), cluster.clock.now()
        found = assess(job, workloads.pods_of(workload.namespace, job.metadata.uid)[job.metadata.uid], now)
        # A controller that has just started knows of no failures that it would have to pause for.
        made = plan_pods(found, Backoff(), now)
        await writes.delete(made.delete)
        predecessors = [found.replaced_later.get(index) if index is not None else None for index in made.create]
        bodies = [new_pod(job, *each) for each in zip(made.create, predecessors, strict=True)]
        await writes.create(workload.namespace, bodies)
        await cluster.pods.react()
        if writes.refusal or not writes.count:
            return writes.refusal
    return ""


@dataclass(frozen=True, slots=True)
class _Fleet:
    """What a Deployment owns, as it is at present."""

    deployment: Deployment
    replica_sets: Sequence[ReplicaSet]
    pods: Mapping[str, Sequence[Pod]]
    """By the uid of their ReplicaSet."""
    later: datetime
    """When pods that are ready have been so for long enough. Until then nothing would happen."""

    @property
    def new(self) -> ReplicaSet | None:
        return find_new(self.deployment, self.replica_sets)

    @property
    def is_final(self) -> bool:
        """Whether all ReplicaSets have their last size, whatever becomes of their pods."""
        total = sum(each.wanted for each in self.replica_sets)
        return self.new is not None and self.deployment.wanted == self.new.wanted == total

    def active(self, owner: ReplicaSet) -> list[Pod]:
        return [pod for pod in self.pods[owner.metadata.uid] if is_active(pod)]

    def plan(self) -> Plan:
        counted = [
            replace(each, status=new_status(each, Observation(self.active(each), 0), self.later))
            for each in self.replica_sets
        ]
        occupied = [uid for uid, pods in self.pods.items() if not all(map(is_finished, pods))]
        return plan(Situation(self.deployment, counted, occupied), self.later)

    def why_not_new(self) -> str:
        """Why old pods stay; empty if none does."""
        old = sum(len(self.active(each)) for each in self.replica_sets if each is not self.new)
        if not old:
            return ""
        placed = sum(bool(pod.spec.node_name) for pod in self.active(self.new)) if self.new is not None else 0
        stops = "it is paused" if self.deployment.spec.paused else "the rollout stops"
        return f"{stops}, {placed} of {self.deployment.wanted} new pods have a node, {old} old ones stay"


async def _follow_deployment(cluster: SimulatedCluster, workload: WorkloadName) -> str:
    while True:
        moved = await _write(cluster, workload.namespace, _fleet(cluster, workload).plan())
        fleet, writes = _fleet(cluster, workload), PodWrites(cluster, workload)
        related = [pod for each in fleet.replica_sets for pod in fleet.active(each)]
        for each in fleet.replica_sets:
            await _scale(writes, REPLICA_SETS, each, fleet.active(each), related, cluster.clock.now())
        if fleet.is_final or not (moved or writes.count):
            why = _fleet(cluster, workload).why_not_new()
            return writes.refusal or (why and f"{workload}: {why}")
        await cluster.settle()


def _fleet(cluster: SimulatedCluster, workload: WorkloadName) -> _Fleet:
    workloads = Workloads(cluster)
    stored = workloads.get(workload)
    deployment = workloads.typed(DEPLOYMENTS, stored)
    replica_sets = [workloads.typed(REPLICA_SETS, each) for each in workloads.replica_sets(stored)]
    later = cluster.clock.now() + timedelta(seconds=deployment.spec.min_ready_seconds)
    pods = workloads.pods_of(workload.namespace, *(each.metadata.uid for each in replica_sets))
    return _Fleet(deployment, replica_sets, pods, later)


async def _write(cluster: SimulatedCluster, namespace: str, made: Plan) -> bool:
    """Write the ReplicaSets alone: nothing here depends on the status and the history of a Deployment. Returns whether
    there was anything to write."""
    environment, resource = cluster.api.environment, cluster.api.resource(REPLICA_SETS)
    if made.created is not None:
        await create(environment, Target(resource, namespace), to_document(made.created))
    patches = [(old.metadata.name, replica_set_patch(old, new)) for old, new in made.changed]
    changed = [(name, patch) for name, patch in patches if patch is not None]
    for name, patch in changed:
        await modify(environment, Target(resource, namespace, name), partial(apply_merge_patch, changes=patch))
    return made.created is not None or bool(changed)
