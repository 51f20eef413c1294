"""Evicts pods through the API server, which honours their disruption budgets.

No candidate keeps the next one from its turn for long, whatever becomes of its own eviction: what is refused is
followed by the next one at once, and what goes counts as released for as long as it may take to go, not for ever.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from koordinator.api.modification import EVICTED, Cause, Modification
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.base.loops import Loop
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.agent_metrics import AgentMetrics, Expiry
from koordinator.koordlet.enforce.node_snapshot import SnapshotSources, take_snapshot
from koordinator.koordlet.enforce.strategies import eviction
from koordinator.koordlet.enforce.strategies.eviction import EvictionPlan
from koordinator.koordlet.enforce.strategies.eviction_round import EvictionRound, Prospects, Victim
from koordinator.koordlet.enforce.strategies.snapshot import pod_reference
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.recent_usage import RecentUsage
from koordinator.koordlet.report.audit.log import AuditEvent, AuditLog
from koordinator.kube.errors import ApiStatusError, TransportError
from koordinator.kube.events import EventRecorder
from koordinator.kube.interface import Client
from koordinator.kube.pod_eviction import evict
from koordinator.model.gang_declaration import gang_id_of

logger = logging.getLogger(__name__)

_DEADLINE: Final = 30.0
_GOING: Final = 120.0
"""Seconds for which a pod that goes counts as released. One that is there after them releases nothing: it hangs in its
end, the API server has no such pod, or the kubelet does not hear of the eviction."""
_SHOWN_WITHIN: Final = 20.0
"""Seconds within which the kubelet lists a pod as terminating, if an eviction without an outcome has taken place."""
_BEHIND: Final = 120.0
"""Seconds for which the candidates without such an eviction then go before it."""
_EVENT_SECONDS: Final = 300.0
_UNAVAILABLE: Final = 503
_TIMEOUT: Final = 504


class Evictor:
    """One for all features: a pod is evicted once."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        events: EventRecorder,
        audit: AuditLog | None,
        on_evicted: Callable[[Victim], None],
        *,
        observe_only: bool,
    ) -> None:
        self._client = client
        self._clock = clock
        self._events = events
        self._audit = audit
        self._on_evicted = on_evicted
        self._observe_only = observe_only
        self._going_since: dict[str, float] = {}
        """UIDs of pods that go: evicted here or by another client, or unknown to the API server."""
        self._unanswered_at: dict[str, float] = {}
        """UIDs of pods whose eviction may have taken place or not."""

    def only_observe(self, is_only: bool) -> None:
        """Whether nobody is evicted from now on. Who was evicted in the log alone may then be evicted."""
        if self._observe_only and not is_only:
            self._going_since.clear()
        self._observe_only = is_only

    def forget(self, present: Collection[str]) -> None:
        """Forget the pods that are not present any more."""
        now = self._clock.monotonic()
        self._going_since = {
            uid: at
            for uid, at in self._going_since.items()
            # What is only observed does not go, however long one waits.
            if uid in present and not (self._observe_only and now - at >= _GOING)
        }
        self._unanswered_at = {
            uid: at for uid, at in self._unanswered_at.items() if uid in present and now - at < _SHOWN_WITHIN + _BEHIND
        }

    async def carry_out(self, plan: EvictionPlan, present: Collection[str]) -> list[Victim]:
        """Evict until every task of the plan is satisfied or out of candidates; those that go are returned."""
        self.forget(present)
        round_ = EvictionRound(plan.tasks, self._prospects(plan))
        gone: list[Victim] = []
        while (victim := round_.next_victim()) is not None:
            uid = victim.usage.pod.uid
            if uid in self._going_since:
                # Another feature's loop has evicted it since this round began.
                round_.count(victim.usage)
                continue
            try:
                await self._evict(victim)
                gone.append(victim)
            except ApiStatusError as error:
                if _is_overload(error):
                    # Requesting the eviction of the next candidate would make it worse.
                    break
                # Refused, by a disruption budget for instance: the next candidate is tried instead.
                if not (error.is_not_found or error.is_conflict):
                    continue
                self._going_since[uid] = self._clock.monotonic()
            except KoordinatorError:
                # There was no response: there would be none for the next candidate, and the eviction may have happened.
                break
            # It goes, or has gone by itself: a pod made anew under its name has used nothing of what was measured.
            round_.count(victim.usage)
        return gone

    def _prospects(self, plan: EvictionPlan) -> Prospects:
        now = self._clock.monotonic()
        for usage in (usage for task in plan.tasks for usage in task.candidates):
            if usage.pod.is_terminating:
                self._going_since.setdefault(usage.pod.uid, now)
                self._unanswered_at.pop(usage.pod.uid, None)
        going = {uid for uid, at in self._going_since.items() if now - at < _GOING}
        behind = {uid for uid, at in self._unanswered_at.items() if now - at >= _SHOWN_WITHIN}
        return Prospects(
            going=frozenset(going | (self._unanswered_at.keys() - behind)),
            stuck=frozenset(self._going_since.keys() - going),
            behind=frozenset(behind),
        )

    async def _evict(self, victim: Victim) -> None:
        """Raises what the client raises, after recording it as an event on the pod."""
        pod = victim.usage.pod.pod.metadata
        reason = f"trigger by koordlet feature {victim.feature}"
        message = f"evict Pod:{pod.namespace}/{pod.name}, reason: evicted, message: {reason}, kill pod: {pod.name}"
        self._going_since[pod.uid] = self._clock.monotonic()
        if self._observe_only:
            logger.info("observe only: %s (%s)", message, victim.reason)
            return
        regarding = pod_reference(pod.namespace, pod.name, pod.uid)
        try:
            await evict(self._client, pod, {})
        except asyncio.CancelledError:
            self._has_no_outcome(pod.uid)
            raise
        except KoordinatorError as error:
            # The other loop may have forgotten it, if its snapshot did not have the pod any more.
            self._going_since.pop(pod.uid, None)
            if _may_have_happened(error):
                self._has_no_outcome(pod.uid)
            logger.warning("%s: %s", message, error)
            self._events.event(regarding, "Warning", "evictPodFail", "Evicting", f"{message}, error {error}")
            raise
        self._unanswered_at.pop(pod.uid, None)
        logger.info("%s (%s)", message, victim.reason)
        record = _modification(victim)
        self._events.event(regarding, "Warning", "evictPodSuccess", "Evicting", message, modification=record)
        if self._audit is not None:
            event = AuditEvent(type="pod", namespace=pod.namespace, name=pod.name, reason="evicted", message=message)
            self._audit.record(event, 0)
        self._on_evicted(victim)

    def _has_no_outcome(self, uid: str) -> None:
        self._going_since.pop(uid, None)
        self._unanswered_at[uid] = self._clock.monotonic()


class Evictions:
    """The evictions for CPU and for memory: two loops, each of which waits for the API server and then for a cool-down.
    Add its ``loops`` to the agent's."""

    def __init__(
        self, context: AgentContext, sources: SnapshotSources, evictor: Evictor, say: Callable[[str, str], None]
    ) -> None:
        """``say`` is called with the name of the evictions and what is wrong with their settings."""
        self._context = context
        self._clock = context.given.clock
        self._sources = sources
        self._evictor = evictor
        self._say = say
        # As the original: for CPU the first pause begins with the agent, for memory there is none before an eviction.
        self._last = {"CPU": self._clock.monotonic(), "memory": -math.inf}

    def loops(self) -> list[Loop]:
        """Of what a gate enables, and has an interval."""
        given, loops = self._context.options.enforcement, list[Loop]()
        for resource, of_resource, interval in (
            ("CPU", eviction.CPU_FEATURES, given.cpu_evict_interval),
            ("memory", eviction.MEMORY_FEATURES, given.memory_evict_interval),
        ):
            if self._enabled(of_resource) and interval > 0:
                evict = partial(self._evict, resource, of_resource)
                loops.append(Loop(f"evictions for {resource}", evict, interval, _DEADLINE))
        return loops

    def _enabled(self, of_resource: Sequence[eviction.Feature]) -> list[eviction.Feature]:
        return [feature for feature in of_resource if self._context.options.features.enabled(feature)]

    async def _evict(self, resource: str, of_resource: Sequence[eviction.Feature]) -> None:
        given, enabled = self._context.options.enforcement, self._enabled(of_resource)
        cool_down = given.cpu_evict_cool_down if resource == "CPU" else given.memory_evict_cool_down
        if self._clock.monotonic() - self._last[resource] < cool_down:
            return
        await self._sources.usage.table.is_whole.wait()
        usage, snapshot = self._sources.usage, take_snapshot(self._sources)
        window = _window(usage, snapshot.policy)
        inputs = eviction.Inputs(
            snapshot,
            best_effort_cpu(usage, window) if eviction.Feature.BE_CPU in enabled else None,
            usage.average(kinds.NODE_CPU_USAGE, window) if eviction.Feature.CPU in enabled else None,
        )
        plan = eviction.plan(inputs, enabled)
        self._say(f"evictions for {resource}", "; ".join(plan.problems) or "settings are valid")
        try:
            has_evicted = bool(await self._evictor.carry_out(plan, {usage.pod.uid for usage in snapshot.pods}))
        except asyncio.CancelledError:
            # The eviction that was requested last may have taken place.
            self._last[resource] = self._clock.monotonic()
            raise
        if has_evicted:
            self._last[resource] = self._clock.monotonic()


def best_effort_cpu(usage: RecentUsage, window: float) -> eviction.BestEffortCPU | None:
    """What best-effort pods use, request and may use, in milli-CPU; None where one of the figures is not known, or
    less than a third of the window was measured."""
    row = usage.table.best_effort
    used, requested, limit = found = [
        usage.samples(kinds.NODE_BE, window, be_resource="cpu", be_allocation=allocation)
        for allocation in ("usage", "request", "real-limit")
    ]
    is_complete = all(found) and min(map(len, found)) * usage.interval >= window / 3
    if not is_complete or row.at < usage.present().since:
        return None
    averages = used.average(), requested.average(), limit.average()
    return eviction.BestEffortCPU(*averages, row.usage, row.request, row.real_limit)


def _modification(victim: Victim) -> Modification:
    usage = victim.usage
    gang = gang_id_of(usage.pod.pod)
    # An agent sees no members on other nodes: koord-descheduler evicts those, if it is to.
    text = f"{victim.reason}; the pod is a member of gang {gang}" if gang else victim.reason
    used = {"usedCPUs": usage.cpu, "usedMemoryBytes": usage.memory}
    return Modification(
        action=EVICTED,
        actor=victim.feature,
        node=usage.pod.pod.spec.node_name,
        cause=Cause(code=victim.feature, text=text),
        numbers={name: round(value, 3) for name, value in used.items() if value is not None},
    )


def _window(usage: RecentUsage, policy: NodeSLOSpec | None) -> float:
    """Seconds, of the policy's evictions for CPU."""
    threshold = policy.resource_used_threshold_with_be if policy is not None else None
    seconds = threshold.cpu_evict_time_window_seconds if threshold is not None else None
    return max(usage.interval, float(seconds or 0))


def count_evictions(metrics: AgentMetrics, clock: Clock) -> Callable[[Victim], None]:
    """What counts the pods that were evicted, all together and, for five minutes, each."""
    total = metrics.counter("pod_eviction", "Number of eviction launched by koordlet", ("reason",))
    detail = metrics.counter(
        "pod_eviction_detail",
        "evict detail launched by koordlet",
        ("reason", "pod_namespace", "pod_name"),
        expiry=Expiry(clock, _EVENT_SECONDS),
    )

    def count(victim: Victim) -> None:
        metadata = victim.usage.pod.pod.metadata
        total.inc("evicted")
        detail.inc("evicted", metadata.namespace, metadata.name)

    return count


def _is_overload(error: ApiStatusError) -> bool:
    """Whether the server refuses all requests. 429 is also the response of a disruption budget, which says so, and of a
    webhook that does not want this pod to go: the server itself says when to come back."""
    is_budget = any(cause.reason == "DisruptionBudget" for cause in error.details.causes)
    is_busy = error.is_too_many_requests and error.retry_after is not None and not is_budget
    return error.code in (_UNAVAILABLE, _TIMEOUT) or is_busy


def _may_have_happened(error: KoordinatorError) -> bool:
    if isinstance(error, TransportError):
        return error.maybe_applied
    return isinstance(error, ApiStatusError) and error.code == _TIMEOUT
