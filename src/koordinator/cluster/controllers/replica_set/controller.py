"""The controllers of ReplicaSets and of ReplicationControllers, which are the same but for their kind: they keep the
wanted number of pods, and count them in the status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from koordinator.api.kinds import PODS, Kind
from koordinator.api.meta import controller_of
from koordinator.api.pod import Pod
from koordinator.base.errors import KoordinatorError
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
from koordinator.cluster.controllers.workloads import (
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    ReplicaSet,
    Replicated,
    ReplicationController,
)
from koordinator.kube.errors import ApiStatusError
from koordinator.model.label_selector import NOTHING, CompiledSelector

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Replicated)

_WORKERS: Final = 5


@dataclass(frozen=True, slots=True)
class _Traits(Generic[R]):
    """What distinguishes the controllers of the two kinds."""

    name: str
    reporter: str
    """Its events name it as their source."""
    kind: Kind[R]
    selector: Callable[[R], CompiledSelector]
    counts_terminating: bool


class _ReplicaController(Generic[R]):
    """Implements ``koordinator.kube.reconciler.Controller``; its keys are ``namespace/name``."""

    def __init__(self, context: ControllerContext, traits: _Traits[R]) -> None:
        self._traits = traits
        kind, selector = traits.kind, traits.selector
        self._client = context.client
        self._clock = context.clock
        self._owners = context.informers.informer(kind, indexes={CONTROLLER_INDEX: by_controller})
        self._pods = context.informers.informer(PODS, indexes={CONTROLLER_INDEX: by_controller})
        recorder = context.events.recorder(traits.reporter)
        self._pod_control = PodControl(context.client, kind, recorder)
        self._reconciler = context.reconcilers.make(
            traits.name,
            self._reconcile,
            lambda: [each.metadata.key for each in self._owners.list()],
            workers=_WORKERS,
        )
        of_pods: OwnerEvents[Pod, R] = OwnerEvents(kind, self._owners, selector, self._reconciler.add)
        of_pods.follow(self._pods, traits.name)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    async def _reconcile(self, key: str) -> float | None:
        owner = self._owners.get(key)
        if owner is None:
            return None
        pods = candidates(self._pods, owner)
        terminating = self._terminating(pods) if self._traits.counts_terminating else None
        claims = claim(owner, [pod for pod in pods if is_active(pod)], self._traits.selector(owner))
        active: Sequence[Pod] = await self._pod_control.claim(owner, claims)
        failure: Exception | None = None
        if owner.metadata.deletion_timestamp is None:
            failure = await self._scale(owner, active)
            active = self._remaining(active)
        now = self._clock.now()
        status = new_status(owner, Observation(active, terminating, _text(failure)), now)
        await write_status(self._client, self._traits.kind, owner, owner.status, status)
        if failure is not None:
            raise failure
        return next_available_in(owner, active, now)

    def _terminating(self, pods: Sequence[Pod]) -> int:
        return sum(is_terminating(pod) and controller_of(pod.metadata) is not None for pod in pods)

    def _remaining(self, pods: Sequence[Pod]) -> list[Pod]:
        """Those that have not been deleted meanwhile: a Deployment must not take them for available ones."""
        now = (self._pods.get(pod.metadata.key) for pod in pods)
        uids = {pod.metadata.uid for pod in now if pod is not None and is_active(pod)}
        return [pod for pod in pods if pod.metadata.uid in uids]

    async def _scale(self, owner: R, active: Sequence[Pod]) -> Exception | None:
        """Create or delete pods until there are as many as wanted. Returns the first failure."""
        missing = owner.wanted - len(active)
        if missing > 0:
            return await self._create(owner, min(missing, BURST))
        if missing < 0:
            return await self._delete(owner, active, min(-missing, BURST))
        return None

    async def _create(self, owner: R, count: int) -> Exception | None:
        body = pod_of(self._traits.kind, owner, owner.spec.template)
        _, failure = await slow_start(count, lambda _: self._pod_control.create(owner, body))
        # Nothing more can be created there, and soon this owner is deleted, too.
        return None if failure is not None and is_namespace_terminating(failure) else failure

    async def _delete(self, owner: R, active: Sequence[Pod], count: int) -> Exception | None:
        chosen = pods_to_delete(active, self._related(owner, active), count, self._clock.now())
        deletions = (self._pod_control.delete(owner, pod) for pod in chosen)
        return first_failure(await asyncio.gather(*deletions, return_exceptions=True))

    def _related(self, owner: R, active: Sequence[Pod]) -> Sequence[Pod]:
        """The active pods of all ReplicaSets of the same Deployment; without one, those of this owner."""
        above = controller_of(owner.metadata)
        if above is None:
            return active
        siblings = self._owners.by_index(CONTROLLER_INDEX, above.uid)
        pods = (pod for each in siblings for pod in self._pods.by_index(CONTROLLER_INDEX, each.metadata.uid))
        return [pod for pod in pods if is_active(pod)]


class ReplicaSetController(_ReplicaController[ReplicaSet]):
    name: Final = "replicaset-controller"

    def __init__(self, context: ControllerContext) -> None:
        traits = _Traits(self.name, self.name, REPLICA_SETS, _of_replica_set, counts_terminating=True)
        super().__init__(context, traits)


class ReplicationControllerController(_ReplicaController[ReplicationController]):
    name: Final = "replicationcontroller-controller"

    def __init__(self, context: ControllerContext) -> None:
        traits = _Traits(
            self.name,
            "replication-controller",
            REPLICATION_CONTROLLERS,
            _of_replication_controller,
            counts_terminating=False,
        )
        super().__init__(context, traits)


def _of_replica_set(replica_set: ReplicaSet) -> CompiledSelector:
    return usable_selector(replica_set.spec.selector)


def _of_replication_controller(controller: ReplicationController) -> CompiledSelector:
    return CompiledSelector(frozenset(controller.spec.selector.items())) if controller.spec.selector else NOTHING


def _text(failure: Exception | None) -> str:
    if failure is None:
        return ""
    if isinstance(failure, ApiStatusError):
        return failure.message
    return str(failure) if isinstance(failure, KoordinatorError) else type(failure).__name__
