"""The ReplicaSet controller: it keeps the wanted number of pods, and counts them in the status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from koordinator.api.kinds import PODS
from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.controllers.child_expectations import ChildExpectations
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.ownership import (
    CONTROLLER_INDEX,
    OwnerEvents,
    by_controller,
    candidates,
    claim,
    usable_selector,
)
from koordinator.cluster.controllers.pod_control import (
    BURST,
    PodControl,
    first_failure,
    is_namespace_terminating,
    pod_of,
    slow_start,
)
from koordinator.cluster.controllers.pod_state import is_active, is_terminating
from koordinator.cluster.controllers.replica_set.deletion_order import pods_to_delete
from koordinator.cluster.controllers.replica_set.status import Observation, new_status, next_available_in
from koordinator.cluster.controllers.status_control import write_status
from koordinator.cluster.controllers.workloads import REPLICA_SETS, ReplicaSet
from koordinator.kube.errors import ApiStatusError
from koordinator.model.label_selector import CompiledSelector

logger = logging.getLogger(__name__)

_WORKERS: Final = 5
_RECHECK_SECONDS: Final = 5.0
"""When the cache is looked at again for the controller's own writes, if no event says before that they are there."""


class ReplicaSetController:
    """Implements ``koordinator.kube.reconciler.Controller``; its keys are ``namespace/name``."""

    name: Final = "replicaset-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._replica_sets = context.informers.informer(REPLICA_SETS, indexes={CONTROLLER_INDEX: by_controller})
        self._pods = context.informers.informer(PODS, indexes={CONTROLLER_INDEX: by_controller})
        self._expectations = ChildExpectations(self._pods, context.clock)
        recorder = context.events.recorder(self.name)
        self._pod_control = PodControl(context.client, REPLICA_SETS, recorder, self._expectations)
        self._reconciler = context.reconcilers.make(
            self.name,
            self._reconcile,
            lambda: [each.metadata.key for each in self._replica_sets.list()],
            workers=_WORKERS,
        )
        of_pods: OwnerEvents[Pod, ReplicaSet] = OwnerEvents(
            REPLICA_SETS, self._replica_sets, _selector, self._reconciler.add
        )
        of_pods.follow(self._pods, self.name, lambda replica_set: self._expectations.forget(replica_set.metadata.uid))

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    async def _reconcile(self, key: str) -> float | None:
        replica_set = self._replica_sets.get(key)
        if replica_set is None:
            return None
        # Looked at before the pods: what is satisfied now stays so, and the pods are no older.
        is_settled = self._expectations.are_satisfied(replica_set.metadata.uid)
        pods = candidates(self._pods, replica_set)
        terminating = sum(is_terminating(pod) and controller_of(pod.metadata) is not None for pod in pods)
        claims = claim(replica_set, [pod for pod in pods if is_active(pod)], _selector(replica_set))
        active = await self._pod_control.claim(replica_set, claims)
        active = self._remaining(replica_set, active)
        failure: Exception | None = None
        if is_settled and replica_set.metadata.deletion_timestamp is None:
            failure = await self._scale(replica_set, active)
            active = self._remaining(replica_set, active)
        now = self._clock.now()
        status = new_status(replica_set, Observation(active, terminating, _text(failure)), now)
        await write_status(self._client, REPLICA_SETS, replica_set, replica_set.status, status)
        if failure is not None:
            raise failure
        wait = next_available_in(replica_set, active, now)
        if is_settled:
            return wait
        return _RECHECK_SECONDS if wait is None else min(wait, _RECHECK_SECONDS)

    def _remaining(self, replica_set: ReplicaSet, pods: Sequence[Pod]) -> list[Pod]:
        """Those that this controller has not deleted: a Deployment must not take them for available ones."""
        return [pod for pod in pods if not self._expectations.is_deleted(replica_set.metadata.uid, pod)]

    async def _scale(self, replica_set: ReplicaSet, active: Sequence[Pod]) -> Exception | None:
        """Create or delete pods until there are as many as wanted. Returns the first failure."""
        missing = replica_set.wanted - len(active)
        if missing > 0:
            return await self._create(replica_set, min(missing, BURST))
        if missing < 0:
            return await self._delete(replica_set, active, min(-missing, BURST))
        return None

    async def _create(self, replica_set: ReplicaSet, count: int) -> Exception | None:
        body = pod_of(REPLICA_SETS, replica_set, replica_set.spec.template)
        _, failure = await slow_start(count, lambda _: self._pod_control.create(replica_set, body))
        # Nothing more can be created there, and soon this ReplicaSet is deleted, too.
        return None if failure is not None and is_namespace_terminating(failure) else failure

    async def _delete(self, replica_set: ReplicaSet, active: Sequence[Pod], count: int) -> Exception | None:
        chosen = pods_to_delete(active, self._related(replica_set, active), count, self._clock.now())
        deletions = (self._pod_control.delete(replica_set, pod) for pod in chosen)
        return first_failure(await asyncio.gather(*deletions, return_exceptions=True))

    def _related(self, replica_set: ReplicaSet, active: Sequence[Pod]) -> Sequence[Pod]:
        """The active pods of all ReplicaSets of the same Deployment; without one, those of this ReplicaSet."""
        owner = controller_of(replica_set.metadata)
        if owner is None:
            return active
        siblings = self._replica_sets.by_index(CONTROLLER_INDEX, owner.uid)
        pods = (pod for each in siblings for pod in self._pods.by_index(CONTROLLER_INDEX, each.metadata.uid))
        return [pod for pod in pods if is_active(pod)]


def _selector(replica_set: ReplicaSet) -> CompiledSelector:
    return usable_selector(replica_set.spec.selector)


def _text(failure: Exception | None) -> str:
    if failure is None:
        return ""
    if isinstance(failure, ApiStatusError):
        return failure.message
    return str(failure) if isinstance(failure, KoordinatorError) else type(failure).__name__
