"""The DaemonSet controller: it keeps one pod on each node that fits, and replaces the pods of old templates."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from koordinator.api.codec import DecodeError
from koordinator.api.kinds import NODES, PODS
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.daemon_set.new_pod import fitness_of, new_pod
from koordinator.cluster.controllers.daemon_set.pod_plan import (
    FAILED,
    DaemonPods,
    NodePods,
    PodPlan,
    by_node,
    plan_pods,
)
from koordinator.cluster.controllers.daemon_set.status import new_status, next_available_in
from koordinator.cluster.controllers.daemon_set.types import DAEMON_SETS, DaemonSet
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
    slow_start,
)
from koordinator.cluster.controllers.revision_control import RevisionControl, Revisions
from koordinator.cluster.controllers.revision_history import REVISION_HASH
from koordinator.cluster.controllers.status_control import write_status
from koordinator.kube.event_series import reference_to
from koordinator.model.label_selector import CompiledSelector

logger = logging.getLogger(__name__)

_WORKERS: Final = 2
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 900.0


class FailurePauses:
    """How long the next failed pod of a node stays, in seconds, so that a kubelet that refuses it is not pestered."""

    def __init__(self) -> None:
        self._pauses: dict[tuple[str, str], tuple[float, float]] = {}

    def remaining(self, uid: str, node: str, now: float) -> float:
        """``uid`` is that of the DaemonSet, ``now`` in monotonic seconds."""
        pause, since = self._pauses.get((uid, node), (0.0, now))
        return max(0.0, since + pause - now)

    def deleted(self, uid: str, node: str, now: float) -> None:
        """A failed pod was deleted. After twice the longest pause without one, the pauses start anew."""
        pause, since = self._pauses.get((uid, node), (0.0, now))
        starts_anew = not pause or now - since > 2 * _LONGEST_PAUSE
        self._pauses[uid, node] = _FIRST_PAUSE if starts_anew else min(2 * pause, _LONGEST_PAUSE), now

    def forget(self, uid: str) -> None:
        """The DaemonSet is gone."""
        self._pauses = {key: value for key, value in self._pauses.items() if key[0] != uid}


class DaemonSetController:
    """Implements ``koordinator.kube.reconciler.Controller``; its keys are ``namespace/name``."""

    name: Final = "daemonset-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._nodes = context.informers.informer(NODES)
        self._daemon_sets = context.informers.informer(DAEMON_SETS)
        self._pods = context.informers.informer(PODS, indexes={CONTROLLER_INDEX: by_controller})
        self._recorder = context.events.recorder(self.name)
        self._pod_control = PodControl(context.client, DAEMON_SETS, self._recorder)
        self._revisions: RevisionControl[DaemonSet] = RevisionControl(context, DAEMON_SETS, REVISION_HASH)
        self._pauses = FailurePauses()
        self._reconciler = context.reconcilers.make(
            self.name,
            self._reconcile,
            lambda: [each.metadata.key for each in self._daemon_sets.list()],
            workers=_WORKERS,
        )
        self._watch()

    def _watch(self) -> None:
        of_pods: OwnerEvents[Pod, DaemonSet] = OwnerEvents(
            DAEMON_SETS, self._daemon_sets, _selector, self._reconciler.add
        )
        of_pods.follow(self._pods, self.name, self._forget)
        self._nodes.add_handlers(
            name=self.name,
            on_add=lambda _, initial: None if initial else self._reconciler.add_all(),
            on_update=lambda old, new: self._reconciler.add_all() if _matters(old, new) else None,
            on_delete=lambda _: self._reconciler.add_all(),
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    def _forget(self, daemon_set: DaemonSet) -> None:
        self._pauses.forget(daemon_set.metadata.uid)

    async def _reconcile(self, key: str) -> float | None:
        daemon_set = self._daemon_sets.get(key)
        # Of one that is being deleted, the revisions may be gone already.
        if daemon_set is None or daemon_set.metadata.deletion_timestamp is not None:
            return None
        try:
            fits = fitness_of(daemon_set)
        except DecodeError as error:
            logger.warning("daemon set %s: the template cannot be read: %s", key, error)
            return None
        selector = _selector(daemon_set)
        claims = claim(daemon_set, candidates(self._pods, daemon_set), selector)
        pods = await self._pod_control.claim(daemon_set, claims)
        collisions = daemon_set.status.collision_count or 0
        revisions = await self._revisions.current(daemon_set, selector, daemon_set.spec.template, collisions)
        placed = by_node(pods)
        nodes = sorted(self._nodes.list(), key=lambda node: node.metadata.name)
        state = DaemonPods(
            daemon_set=daemon_set,
            nodes=[NodePods(node.metadata.name, fits(node), placed.get(node.metadata.name, ())) for node in nodes],
            nowhere=[pod for name, there in placed.items() if self._nodes.get(name) is None for pod in there],
            revision_hash=revisions.current.metadata.labels.get(REVISION_HASH, ""),
            now=self._clock.now(),
        )
        return await self._sync(state, pods, revisions)

    async def _sync(self, state: DaemonPods, pods: Sequence[Pod], revisions: Revisions) -> float | None:
        daemon_set, uid = state.daemon_set, state.daemon_set.metadata.uid
        now = self._clock.monotonic()
        plan = plan_pods(state, lambda node: self._pauses.remaining(uid, node, now))
        failure = await self._write_pods(state, plan)
        if failure is None:
            await self._clean_up(daemon_set, pods, revisions)
        await self._write_status(state, revisions.collisions)
        if failure is not None:
            raise failure
        waits = (plan.retry_after, next_available_in(state))
        return min((wait for wait in waits if wait is not None), default=None)

    async def _write_pods(self, state: DaemonPods, plan: PodPlan) -> Exception | None:
        """Create and delete what is planned. Returns the first failure."""
        daemon_set = state.daemon_set
        for node, pod in plan.ended:
            self._record_end(daemon_set, node, pod)
        bodies = [new_pod(daemon_set, node, state.revision_hash) for node in plan.create[:BURST]]
        _, failure = await slow_start(len(bodies), lambda index: self._pod_control.create(daemon_set, bodies[index]))
        if failure is not None and is_namespace_terminating(failure):
            failure = None
        deletions = (self._pod_control.delete(daemon_set, pod) for pod in plan.delete[:BURST])
        return failure or first_failure(await asyncio.gather(*deletions, return_exceptions=True))

    def _record_end(self, daemon_set: DaemonSet, node: str, pod: Pod) -> None:
        regarding = reference_to(DAEMON_SETS, daemon_set)
        if pod.status.phase == FAILED:
            self._pauses.deleted(daemon_set.metadata.uid, node, self._clock.monotonic())
            text = f"Found failed daemon pod {pod.metadata.key} on node {node}, will try to kill it"
            self._recorder.event(regarding, "Warning", "FailedDaemonPod", "FailedDaemonPod", text)
        else:
            text = f"Found succeeded daemon pod {pod.metadata.key} on node {node}, will try to delete it"
            self._recorder.event(regarding, "Normal", "SucceededDaemonPod", "SucceededDaemonPod", text)

    async def _clean_up(self, daemon_set: DaemonSet, pods: Sequence[Pod], revisions: Revisions) -> None:
        hashes = {pod.metadata.labels.get(REVISION_HASH) for pod in pods}
        old = revisions.history.old
        in_use = {each.metadata.name for each in old if each.metadata.labels.get(REVISION_HASH) in hashes}
        limit = daemon_set.spec.revision_history_limit
        await self._revisions.delete_surplus(revisions.history, in_use, 10 if limit is None else limit)

    async def _write_status(self, state: DaemonPods, collisions: int) -> None:
        daemon_set = state.daemon_set
        await write_status(self._client, DAEMON_SETS, daemon_set, daemon_set.status, new_status(state, collisions))


def _selector(daemon_set: DaemonSet) -> CompiledSelector:
    return usable_selector(daemon_set.spec.selector)


def _matters(old: Node, new: Node) -> bool:
    """Whether the change of a node may change which pods it should have."""
    return old.metadata.labels != new.metadata.labels or old.spec.taints != new.spec.taints
