"""The StatefulSet controller: pods with names and claims of their own, created, replaced and deleted in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from koordinator.api.document import Document
from koordinator.api.kinds import PODS
from koordinator.api.pod import Pod
from koordinator.base.errors import KoordinatorError
from koordinator.cluster.controllers.adoption import Adoption
from koordinator.cluster.controllers.context import ControllerContext
from koordinator.cluster.controllers.ownership import (
    CONTROLLER_INDEX,
    OwnerEvents,
    by_controller,
    candidates,
    claim,
    usable_selector,
)
from koordinator.cluster.controllers.pod_control import is_namespace_terminating, slow_start
from koordinator.cluster.controllers.revision_control import RevisionControl, Revisions
from koordinator.cluster.controllers.revision_history import ControllerRevision, History
from koordinator.cluster.controllers.stateful_set.claims import ClaimControl
from koordinator.cluster.controllers.stateful_set.identity import (
    missing_identity,
    new_pod,
    ordinal_of,
    pod_name,
    revision_of,
)
from koordinator.cluster.controllers.stateful_set.pod_plan import PodPlan, PodsOfSet, by_ordinal, plan_pods
from koordinator.cluster.controllers.stateful_set.status import new_status
from koordinator.cluster.controllers.stateful_set.types import STATEFUL_SETS, StatefulSet
from koordinator.cluster.controllers.status_control import write_status
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.event_series import reference_to
from koordinator.kube.interface import PatchType
from koordinator.model.label_selector import CompiledSelector

_WORKERS: Final = 5
_HASH: Final = "controller.kubernetes.io/hash"


class StatefulSetController:
    """Implements ``koordinator.kube.reconciler.Controller``; its keys are ``namespace/name``."""

    name: Final = "statefulset-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._sets = context.informers.informer(STATEFUL_SETS)
        self._pods = context.informers.informer(PODS, indexes={CONTROLLER_INDEX: by_controller})
        self._recorder = context.events.recorder(self.name)
        self._adoption = Adoption(context.client, STATEFUL_SETS, PODS)
        self._revisions: RevisionControl[StatefulSet] = RevisionControl(context, STATEFUL_SETS, _HASH)
        self._claims = ClaimControl(context)
        self._reconciler = context.reconcilers.make(
            self.name, self._reconcile, lambda: [each.metadata.key for each in self._sets.list()], workers=_WORKERS
        )
        of_pods: OwnerEvents[Pod, StatefulSet] = OwnerEvents(STATEFUL_SETS, self._sets, _selector, self._reconciler.add)
        of_pods.follow(self._pods, self.name)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    async def _reconcile(self, key: str) -> float | None:
        stateful_set = self._sets.get(key)
        if stateful_set is None:
            return None
        selector = _selector(stateful_set)
        members = [
            pod
            for pod in candidates(self._pods, stateful_set)
            if ordinal_of(stateful_set, pod.metadata.name) is not None
        ]
        pods = await self._adoption.claim(stateful_set, claim(stateful_set, members, selector))
        if stateful_set.metadata.deletion_timestamp is not None:
            return None
        collisions = stateful_set.status.collision_count or 0
        revisions = await self._revisions.current(stateful_set, selector, stateful_set.spec.template, collisions)
        return await self._sync(stateful_set, pods, revisions)

    async def _sync(self, stateful_set: StatefulSet, pods: Sequence[Pod], revisions: Revisions) -> float | None:
        current = _current_revision(stateful_set, revisions)
        state = PodsOfSet(
            stateful_set=stateful_set,
            pods=by_ordinal(stateful_set, pods),
            current_revision=current.metadata.name,
            update_revision=revisions.current.metadata.name,
            now=self._clock.now(),
        )
        plan = plan_pods(state)
        failure = await self._write_pods(
            state, plan, {each.metadata.name: each for each in (revisions.current, current)}
        )
        await self._write_status(state, revisions.collisions)
        if failure is not None:
            raise failure
        await self._clean_up(state, pods, revisions)
        return plan.look_again

    async def _write_pods(
        self, state: PodsOfSet, plan: PodPlan, revisions: dict[str, ControllerRevision]
    ) -> Exception | None:
        """Create and delete what is planned, and mend what is there. Returns the first failure."""
        stateful_set = state.stateful_set

        async def create(position: int) -> None:
            ordinal = plan.create[position]
            revision = state.revision_for(ordinal)
            await self._create(stateful_set, ordinal, revision, _template(revisions[revision]))

        _, failure = await slow_start(len(plan.create), create)
        try:
            await self._mend(state)
            for pod in plan.delete:
                await self._delete(stateful_set, pod, has_ended=pod in plan.ended)
        except KoordinatorError as error:
            return failure or error
        return None if failure is not None and is_namespace_terminating(failure) else failure

    async def _create(self, stateful_set: StatefulSet, ordinal: int, revision: str, template: Document) -> None:
        what = f"Pod {pod_name(stateful_set, ordinal)} in StatefulSet {stateful_set.metadata.name}"
        namespace = stateful_set.metadata.namespace
        await self._claims.create(stateful_set, ordinal, lambda reason, text: self._record(stateful_set, reason, text))
        try:
            await self._client.create(PODS, new_pod(stateful_set, template, ordinal, revision), namespace)
        except ApiStatusError as error:
            if not is_namespace_terminating(error):
                self._record(stateful_set, "FailedCreate", f"Create {what} failed error: {error.message}")
            raise
        self._record(stateful_set, "SuccessfulCreate", f"Create {what} successful")

    async def _delete(self, stateful_set: StatefulSet, pod: Pod, *, has_ended: bool) -> None:
        metadata = pod.metadata
        what = f"Pod {metadata.name} in StatefulSet {stateful_set.metadata.name}"
        if has_ended:
            ended = "Failed" if pod.status.phase == "Failed" else "Terminated"
            text = f"StatefulSet {stateful_set.metadata.key} is recreating {ended.lower()} Pod {metadata.name}"
            reference = reference_to(STATEFUL_SETS, stateful_set)
            self._recorder.event(reference, "Warning", f"Recreating{ended}Pod", f"Recreating{ended}Pod", text)
        try:
            await self._client.delete(PODS, metadata.name, metadata.namespace, uid=metadata.uid)
        except ApiStatusError as error:
            if not (error.is_not_found or error.is_conflict):
                self._record(stateful_set, "FailedDelete", f"Delete {what} failed error: {error.message}")
                raise
        self._record(stateful_set, "SuccessfulDelete", f"Delete {what} successful")

    async def _mend(self, state: PodsOfSet) -> None:
        """Give the pods the labels of their identity back, and their claims the right owners."""
        stateful_set = state.stateful_set
        for ordinal, pod in state.pods.items():
            labels = missing_identity(stateful_set, pod, ordinal)
            if labels and pod.metadata.deletion_timestamp is None:
                metadata = pod.metadata
                patch = {"metadata": {"uid": metadata.uid, "labels": labels}}
                await self._client.patch(PODS, metadata.name, patch, PatchType.MERGE, metadata.namespace)
        await self._claims.see_to_owners(stateful_set, list(state.pods.items()))

    async def _clean_up(self, state: PodsOfSet, pods: Sequence[Pod], revisions: Revisions) -> None:
        in_use = {state.current_revision, state.update_revision, *map(revision_of, pods)}
        old = [each for each in revisions.history.old if each.metadata.name not in in_use]
        limit = state.stateful_set.spec.revision_history_limit
        history = History(revisions.history.current, old, revisions.history.number)
        await self._revisions.delete_surplus(history, (), 10 if limit is None else limit)

    async def _write_status(self, state: PodsOfSet, collisions: int) -> None:
        stateful_set = state.stateful_set
        await write_status(
            self._client, STATEFUL_SETS, stateful_set, stateful_set.status, new_status(state, collisions)
        )

    def _record(self, stateful_set: StatefulSet, reason: str, text: str) -> None:
        reference = reference_to(STATEFUL_SETS, stateful_set)
        self._recorder.event(reference, "Warning" if reason.startswith("Failed") else "Normal", reason, reason, text)


def _current_revision(stateful_set: StatefulSet, revisions: Revisions) -> ControllerRevision:
    """The revision from which an update starts; that of the template if it is not there."""
    name = stateful_set.status.current_revision
    return next((each for each in revisions.history.old if each.metadata.name == name), revisions.current)


def _template(revision: ControllerRevision) -> Document:
    template: Document = (revision.data.get("spec") or {}).get("template") or {}
    return {name: value for name, value in template.items() if name != "$patch"}


def _selector(stateful_set: StatefulSet) -> CompiledSelector:
    return usable_selector(stateful_set.spec.selector)
