"""Carries out what is decided about the pods of Recommendations: resizes in place, undoes and evicts.

What the API server, a quota or a disruption budget refuses is named in an event of the pod, and tried again
later and later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from koordinator.api.kinds import (
    ELASTIC_QUOTAS,
    POD_DISRUPTION_BUDGETS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Kind,
)
from koordinator.api.meta import Object, WireStruct, controller_of
from koordinator.api.modification import EVICTED, RESIZED, Cause, Modification
from koordinator.api.quantity import Quantity
from koordinator.api.recommendation import BY_RESIZE, AppliedRecommendation, ContainerChange
from koordinator.api.workload import PodDisruptionBudget
from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.errors import KoordinatorError
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.event_series import reference_to
from koordinator.kube.pod_eviction import evict
from koordinator.manager.controllers import ControllerContext
from koordinator.manager.features import POD_MUTATING_WEBHOOK, WEBHOOK_FRAMEWORK
from koordinator.manager.recommender.in_place import patch_resources, resize_in_place, write_record
from koordinator.manager.recommender.limit_ranges import LimitRangeLister
from koordinator.manager.recommender.observed_pods import OBSERVED_PODS, ObservedPod
from koordinator.manager.recommender.resize_decision import (
    Evict,
    Resize,
    Undo,
    decide,
    restored,
)
from koordinator.manager.recommender.samples import Readings
from koordinator.manager.recommender.tracked import Tracked
from koordinator.model.container_sizes import describe
from koordinator.model.label_selector import SelectorError, compile_selector
from koordinator.model.quota_tree.pod_quota import quota_name_of
from koordinator.model.quota_tree.quota import Quota
from koordinator.model.quota_tree.tree import QuotaTree
from koordinator.model.recommendations import precedence, recommended

logger = logging.getLogger(__name__)

_RETRY: Final = BackoffPolicy(initial=300.0, maximum=7200.0, jitter=0.25, reset_after=7200.0)


class Resizer:
    """Call ``act`` in every pass of the recommender, with all Recommendations."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._random = context.random
        self._options = context.options.recommender.resize
        self._events = context.events.recorder("recommender")
        self._yielding = context.reconcilers.yielding
        self._quotas = _Quotas(context)
        self._limit_ranges = LimitRangeLister(context.informers, context.options.namespace)
        self._results = context.metrics.counter(
            "koord_manager_recommender_resizes_total",
            "Pods of Recommendations that were resized in place, given back what they had, or evicted, by result",
            ("result",),
        )
        features = context.options.features
        self._admits = features.enabled(WEBHOOK_FRAMEWORK) and features.enabled(POD_MUTATING_WEBHOOK)
        self._held: dict[str, _Held] = {}
        """By the UID of a pod."""
        self._evictions: dict[str, _Eviction] = {}
        """By the UID of a Recommendation, the last one."""
        self._budgets: dict[str, list[PodDisruptionBudget]] = {}
        """By namespace, as read in this pass."""

    async def act(self, all_tracked: Iterable[Tracked], readings: Readings) -> None:
        """One action for each of them at most."""
        self._budgets.clear()
        alive = set[str]()
        for tracked in sorted(all_tracked, key=lambda each: precedence(each.recommendation)):
            await self._yielding.checkpoint()
            # Where several Recommendations are about one pod, it goes by the first.
            pods = [pod for pod in tracked.pods if pod.metadata.uid not in alive]
            alive.update(pod.metadata.uid for pod in pods)
            tracked.waiting = {}
            is_concerned = tracked.rules.resizes or any(pod.metadata.annotations for pod in pods)
            if pods and is_concerned and tracked.recommendation.metadata.deletion_timestamp is None:
                await self._act_on(tracked, pods, readings)
        self._held = {uid: held for uid, held in self._held.items() if uid in alive}
        now = self._clock.monotonic()
        self._evictions = {uid: each for uid, each in self._evictions.items() if now < each.until}

    async def _act_on(self, tracked: Tracked, pods: Sequence[ObservedPod], readings: Readings) -> None:
        now = self._clock.monotonic()
        eviction = self._evictions.get(tracked.recommendation.metadata.uid)
        held = {uid: each.reason for uid, each in self._held.items() if now < each.until}
        decision = decide(
            recommended(tracked.recommendation),
            tracked.rules,
            pods,
            readings,
            held,
            self._limit_ranges.bounds_of(tracked.recommendation.metadata.namespace),
            self._options,
            self._clock.now(),
            may_evict=self._admits and (eviction is None or len(pods) >= eviction.pods),
        )
        tracked.waiting = decision.waiting
        action = decision.action
        if action is None:
            return
        if self._options.is_dry_run:
            self._results.labels("dry_run").inc()
            tracked.waiting = {**decision.waiting, action.pod.metadata.name: f"dry run: {_text_of(action)}"}
            logger.info("dry run: recommender: pod %s: %s", action.pod.metadata.key, _text_of(action))
            return
        try:
            match action:
                case Resize():
                    await self._resize(tracked, action)
                case Undo():
                    await self._undo(tracked, action)
                case Evict():
                    await self._evict(tracked, action, len(pods))
        except _RefusedError as error:
            self._refused(tracked, action.pod, str(error))
        except KubeError as error:
            if not (isinstance(error, ApiStatusError) and error.is_not_found):
                self._refused(tracked, action.pod, str(error))

    async def _resize(self, tracked: Tracked, action: Resize) -> None:
        pod, changes = action.pod, action.changes
        if refusal := self._quotas.refusal(pod, changes):
            raise _RefusedError(refusal)
        if action.restarted and (refusal := await self._budget_refusal(pod)):
            raise _RefusedError(f"{', '.join(action.restarted)} would be restarted, and {refusal}")
        await resize_in_place(self._client, action, tracked.recommendation.metadata.name, self._clock.now())
        self._results.labels("resized").inc()
        self._held.pop(pod.metadata.uid, None)
        self._tell(tracked, pod, "Normal", "RecommendationApplied", describe(changes), "Recommendation")

    async def _undo(self, tracked: Tracked, action: Undo) -> None:
        pod, changes = action.pod, restored(action.pod, action.record)
        if refusal := self._quotas.refusal(pod, changes):
            # Whoever may write the pod may have written the record.
            raise _RefusedError(refusal)
        if changes:
            await patch_resources(self._client, pod, changes)
        record = AppliedRecommendation(
            recommendation=action.record.recommendation,
            by=BY_RESIZE,
            at=self._clock.now().replace(microsecond=0),
            containers=action.record.containers,
            undone=action.reason,
            undos=action.record.undos + 1,
        )
        await write_record(self._client, pod, record)
        self._results.labels("undone").inc()
        text = f"{action.reason}; {describe(changes) or 'nothing is left to give back'}"
        self._tell(tracked, pod, "Warning", "RecommendationUndone", text, "Undone")

    async def _evict(self, tracked: Tracked, action: Evict, pods: int) -> None:
        """One of so many pods. What was evicted before another replica led is seen in what is not there yet."""
        if refusal := await self._unreplaced(tracked, action.pod):
            raise _RefusedError(refusal)
        await evict(self._client, action.pod.metadata, {})
        until = self._clock.monotonic() + self._options.hold.total_seconds()
        self._evictions[tracked.recommendation.metadata.uid] = _Eviction(pods, until)
        self._results.labels("evicted").inc()
        self._tell(tracked, action.pod, "Normal", "RecommendationEvicted", action.reason, "Recommendation", EVICTED)

    async def _unreplaced(self, tracked: Tracked, pod: ObservedPod) -> str:
        """Which pod of the workload is not running yet, so that no other one is evicted; empty if all are."""
        namespace, controller = pod.metadata.namespace, controller_of(pod.metadata)
        uid = controller.uid if controller is not None else ""
        for each in (await self._client.list(OBSERVED_PODS, namespace, field_selector="spec.nodeName=")).items:
            owner, target = controller_of(each.metadata), tracked.target
            is_own = owner is not None and owner.uid == uid
            is_own = is_own or (target is not None and target.selector.matches(each.metadata.labels))
            if is_own and not each.is_finished:
                return f"pod {each.metadata.name} of it has no node yet"
        kind = _COUNTED.get((controller.api_version, controller.kind)) if controller is not None else None
        if controller is None or kind is None:
            return ""
        try:
            found = await self._client.get(kind, controller.name, namespace)
        except ApiStatusError as error:
            if error.is_not_found:
                return ""
            raise
        wanted, ready = found.spec.replicas, found.status.ready_replicas
        return f"{ready} of {wanted} pods of {controller.kind} {controller.name} are ready" if ready < wanted else ""

    def _refused(self, tracked: Tracked, pod: ObservedPod, reason: str) -> None:
        """Named, and tried again later."""
        held = self._held.get(pod.metadata.uid)
        backoff = held.backoff if held is not None else Backoff(_RETRY, self._clock, self._random)
        self._held[pod.metadata.uid] = _Held(reason, self._clock.monotonic() + backoff.next(), backoff)
        tracked.waiting = {**tracked.waiting, pod.metadata.name: reason}
        self._results.labels("refused").inc()
        note = f"Recommendation {tracked.recommendation.metadata.name} is not applied: {reason}"
        self._events.event(reference_to(OBSERVED_PODS, pod), "Warning", "RecommendationNotApplied", "Resize", note)

    def _tell(
        self, tracked: Tracked, pod: ObservedPod, type_: Any, reason: str, text: str, code: str, action: str = RESIZED
    ) -> None:
        name = tracked.recommendation.metadata.name
        record = Modification(
            action=action,
            actor=f"Recommendation/{name}",
            node=pod.spec.node_name,
            cause=Cause(code=code, text=f"Recommendation {name}: {text}"),
        )
        note = f"Recommendation {name}: {text}"
        self._events.event(reference_to(OBSERVED_PODS, pod), type_, reason, "Resize", note, modification=record)

    async def _budget_refusal(self, pod: ObservedPod) -> str:
        """The budget that allows no pod of its own to be disrupted now; empty if none speaks against it."""
        namespace = pod.metadata.namespace
        if namespace not in self._budgets:
            page = await self._client.list(POD_DISRUPTION_BUDGETS, namespace)
            self._budgets[namespace] = list(page.items)
        for budget in self._budgets[namespace]:
            try:
                selects = compile_selector(budget.spec.selector).matches(pod.metadata.labels)
            except SelectorError:
                continue
            if selects and budget.status.disruptions_allowed < 1:
                return f"PodDisruptionBudget {budget.metadata.name} allows no disruption"
        return ""


class _ReplicaSpec(WireStruct):
    replicas: int = 1


class _ReplicaStatus(WireStruct):
    ready_replicas: int = 0


class _Replicas(Object):
    """What controls pods and counts them."""

    spec: _ReplicaSpec = _ReplicaSpec()
    status: _ReplicaStatus = _ReplicaStatus()


_COUNTED: Final = {
    (each.api_version, each.name): Kind(each.group, each.version, each.plural, each.name, _Replicas)
    for each in (REPLICA_SETS, STATEFUL_SETS, REPLICATION_CONTROLLERS)
}
"""By the API version and the kind of an owner."""


class _RefusedError(KoordinatorError):
    """A rule of ours speaks against it."""


class _Held:
    """A pod that is not tried again before a time."""

    def __init__(self, reason: str, until: float, backoff: Backoff) -> None:
        self.reason = reason
        self.until = until
        self.backoff = backoff


class _Eviction(NamedTuple):
    """A pod was evicted when there were so many; fewer are waited for until a time."""

    pods: int
    until: float


class _Quotas:
    """The elastic quotas, by which a resize is checked that raises requests: no program refuses it for them."""

    def __init__(self, context: ControllerContext) -> None:
        self._tree = QuotaTree()
        self._informer = context.informers.informer(
            ELASTIC_QUOTAS, namespace=context.options.namespace, absent_is_empty=True
        )
        self._informer.add_handlers(
            name="resizes within quotas",
            on_add=lambda quota, _: self._tree.put(Quota.of(quota)),
            on_update=lambda _, quota: self._tree.put(Quota.of(quota)),
            on_delete=lambda quota: self._tree.discard(quota.metadata.key),
        )

    def refusal(self, pod: ObservedPod, changes: Mapping[str, ContainerChange]) -> str:
        """Why a quota of the pod has no room for what the changes add; empty if all have."""
        added = dict[str, int]()
        for change in changes.values():
            for name, each in change.requests.items():
                nanos = (each.after.nanos if each.after else 0) - (each.before.nanos if each.before else 0)
                added[name] = added.get(name, 0) + nanos
        own = self._tree.get(quota_name_of(pod.metadata, pod.metadata.namespace, self._tree))
        for quota in (own, *self._tree.ancestors(own)) if own is not None else ():
            stored = self._informer.get(quota.key)
            used = stored.status.used if stored is not None else {}
            for name, nanos in sorted(added.items()):
                most = quota.max.get(name)
                if nanos > 0 and most is not None and _nanos(used.get(name)) + nanos > most.nanos:
                    return f"ElasticQuota {quota.key} has no room: {used.get(name, 0)} of {most} {name} are used"
        return ""


def _nanos(quantity: Quantity | None) -> int:
    return quantity.nanos if quantity is not None else 0


def _text_of(action: Resize | Undo | Evict) -> str:
    match action:
        case Resize():
            return describe(action.changes)
        case Undo():
            return f"would be undone: {action.reason}"
        case Evict():
            return f"would be evicted: {action.reason}"
