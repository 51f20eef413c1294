"""Brings the pods of a StatefulSet to what its spec says, in the order in which its controller does, while the new ones
get nodes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from koordinator.api.codec import to_document
from koordinator.api.document import Document, same
from koordinator.api.kinds import PERSISTENT_VOLUME_CLAIMS
from koordinator.api.pod import Pod
from koordinator.cluster.controllers.revision_history import new_revision, template_data
from koordinator.cluster.controllers.stateful_set.identity import new_claims, new_pod, revision_of
from koordinator.cluster.controllers.stateful_set.pod_plan import PodsOfSet, by_ordinal, plan_pods
from koordinator.cluster.controllers.stateful_set.status import new_status
from koordinator.cluster.controllers.stateful_set.types import STATEFUL_SETS, StatefulSet
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.target import Target
from koordinator.simulate.simulated_cluster import SimulatedCluster
from koordinator.simulate.workloads import PodWrites, WorkloadName, Workloads


class StatefulSetRollout:
    """The steps of one StatefulSet. Of its revisions two are known: that of the template before the last change, from
    which pods below the partition are made, and that of the present one."""

    def __init__(self, cluster: SimulatedCluster, workload: WorkloadName, before: Document | None) -> None:
        self._cluster = cluster
        self._workload = workload
        self._workloads = Workloads(cluster)
        stored = self._workloads.get(workload)
        self._stateful_set = self._workloads.typed(STATEFUL_SETS, stored)
        old = self._workloads.typed(STATEFUL_SETS, before or stored)
        current = old.status.update_revision or _revision_name(old)
        is_changed = not same(*(template_data(each.spec.template) for each in (old, self._stateful_set)))
        self._update: Final = _revision_name(self._stateful_set) if is_changed else current
        self._current: Final = current
        self._templates: Final = {current: old.spec.template, self._update: self._stateful_set.spec.template}

    async def run(self) -> str:
        """Returns what keeps it from being as its spec says; empty if nothing does."""
        while True:
            state = self._state()
            made = plan_pods(state)
            writes = PodWrites(self._cluster, self._workload)
            await writes.delete(made.delete)
            await self._create_claims(made.create)
            missing = [ordinal for ordinal in self._stateful_set.ordinals if ordinal not in state.pods]
            bodies = [self._new_pod(state, ordinal) for ordinal in made.create]
            await writes.create(self._workload.namespace, bodies, later=len(missing) - len(bodies))
            await self._write_status(state)
            if not writes.count:
                return writes.refusal or self._why_not_all(state, len(missing))
            await self._cluster.settle()

    def _state(self) -> PodsOfSet:
        """Pods that are ready are looked at when they have been ready for long enough: nothing happens meanwhile."""
        stateful_set, uid = self._stateful_set, self._stateful_set.metadata.uid
        return PodsOfSet(
            stateful_set=stateful_set,
            pods=by_ordinal(stateful_set, self._workloads.pods_of(self._workload.namespace, uid)[uid]),
            current_revision=self._current,
            update_revision=self._update,
            now=self._cluster.clock.now() + timedelta(seconds=stateful_set.spec.min_ready_seconds),
        )

    def _new_pod(self, state: PodsOfSet, ordinal: int) -> Document:
        revision = state.revision_for(ordinal)
        return new_pod(self._stateful_set, self._templates[revision], ordinal, revision)

    async def _create_claims(self, ordinals: Sequence[int]) -> None:
        api, namespace = self._cluster.api, self._workload.namespace
        target = Target(api.resource(PERSISTENT_VOLUME_CLAIMS), namespace)
        for body in (claim for ordinal in ordinals for claim in new_claims(self._stateful_set, ordinal)):
            if api.document(PERSISTENT_VOLUME_CLAIMS, body["metadata"]["name"], namespace) is None:
                await create(api.environment, target, body)

    async def _write_status(self, state: PodsOfSet) -> None:
        """The next change begins with the revisions in it."""
        self._stateful_set = replace(self._stateful_set, status=new_status(state, 0))
        stored = self._workloads.get(self._workload)
        await self._cluster.api.put(STATEFUL_SETS, {**stored, "status": to_document(self._stateful_set.status)})

    def _why_not_all(self, state: PodsOfSet, missing: int) -> str:
        old = sum(ordinal in state.pods and self._is_old(state.pods[ordinal]) for ordinal in state.to_update)
        counts = {"old pods stay": old, "pods are not created": missing, "pods too many stay": len(state.condemned)}
        rest = [f"{count} {what}" for what, count in counts.items() if count]
        if not rest:
            return ""
        awaited = next(pod for _, pod in sorted(state.pods.items()) if not _is_there(state, pod))
        lacks = "is not ready" if awaited.spec.node_name else "has no node"
        return f"{self._workload}: the rollout stops at {awaited.metadata.name}, which {lacks}; {', '.join(rest)}"

    def _is_old(self, pod: Pod) -> bool:
        return revision_of(pod) != self._update


def _is_there(state: PodsOfSet, pod: Pod) -> bool:
    return state.is_available(pod) and pod.metadata.deletion_timestamp is None


def _revision_name(stateful_set: StatefulSet) -> str:
    name: str = new_revision(STATEFUL_SETS, stateful_set, stateful_set.spec.template, 1, 0, "")["metadata"]["name"]
    return name
