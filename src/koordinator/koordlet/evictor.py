"""Evicts pods through the API server, which honours their disruption budgets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from koordinator.api.meta import ObjectReference
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.koordlet.agent_metrics import AgentMetrics, Expiry
from koordinator.koordlet.audit.log import AuditEvent, AuditLog
from koordinator.koordlet.qos.eviction import EvictionPlan
from koordinator.koordlet.qos.eviction_round import EvictionRound, Victim
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.events import EventRecorder
from koordinator.kube.interface import Client
from koordinator.kube.pod_eviction import evict

logger = logging.getLogger(__name__)

_REMEMBERED: Final = 120.0
"""Seconds for which an evicted pod is not evicted again, and a terminating one counts: it is on its way out."""
_EVENT_SECONDS: Final = 300.0
_UNAVAILABLE: Final = (503, 504)


@dataclass(frozen=True, slots=True)
class EvictorDependencies:
    client: Client
    clock: Clock
    events: EventRecorder
    audit: AuditLog | None
    on_evicted: Callable[[Victim], None]


class Evictor:
    """One for all features: a pod is evicted once."""

    def __init__(self, given: EvictorDependencies, *, observe_only: bool) -> None:
        self._given = given
        self._observe_only = observe_only
        self._evicted_at: dict[str, float] = {}
        self._terminating_since: dict[str, float] = {}
        """Pods whose eviction or deletion another client requested."""

    def evicted(self, present: Collection[str]) -> frozenset[str]:
        """UIDs of pods that were evicted lately; those that are not present any more are forgotten."""
        now = self._given.clock.monotonic()
        self._evicted_at = {
            uid: at for uid, at in self._evicted_at.items() if now - at < _REMEMBERED and uid in present
        }
        return frozenset(self._evicted_at)

    async def carry_out(self, plan: EvictionPlan, present: Collection[str]) -> list[Victim]:
        """Evict until every task of the plan is satisfied or out of candidates; those that go are returned."""
        round_ = EvictionRound(plan.tasks, self.evicted(present) | self._terminating(plan, present))
        gone: list[Victim] = []
        while (victim := round_.next_victim()) is not None:
            if victim.usage.pod.uid in self._evicted_at:
                # Another feature's loop has evicted it since this round began.
                round_.evicted(victim)
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
            except KoordinatorError:
                # There was no response: there would be none for the next candidate, and the eviction may have happened.
                break
            # It goes, or has gone by itself: a pod made anew under its name has used nothing of what was measured.
            round_.evicted(victim)
        return gone

    def _terminating(self, plan: EvictionPlan, present: Collection[str]) -> frozenset[str]:
        """Candidates that end already, for a while: what hangs in its end releases nothing."""
        now = self._given.clock.monotonic()
        ending = {usage.pod.uid for task in plan.tasks for usage in task.candidates if usage.is_terminating}
        self._terminating_since = {uid: at for uid, at in self._terminating_since.items() if uid in present}
        for uid in ending:
            self._terminating_since.setdefault(uid, now)
        return frozenset(uid for uid in ending if now - self._terminating_since[uid] < _REMEMBERED)

    async def _evict(self, victim: Victim) -> None:
        """Raises what the client raises, after recording it as an event on the pod."""
        pod = victim.usage.pod.pod.metadata
        reason = f"trigger by koordlet feature {victim.feature}"
        message = f"evict Pod:{pod.namespace}/{pod.name}, reason: evicted, message: {reason}, kill pod: {pod.name}"
        self._evicted_at[pod.uid] = self._given.clock.monotonic()
        if self._observe_only:
            logger.info("observe only: %s (%s)", message, victim.reason)
            return
        regarding = ObjectReference("v1", "Pod", pod.namespace, pod.name, pod.uid)
        try:
            await evict(self._given.client, pod, {})
        except KoordinatorError as error:
            # The other loop may have forgotten it, if its snapshot did not have the pod any more.
            self._evicted_at.pop(pod.uid, None)
            logger.warning("%s: %s", message, error)
            self._given.events.event(regarding, "Warning", "evictPodFail", "Evicting", f"{message}, error {error}")
            raise
        logger.info("%s (%s)", message, victim.reason)
        self._given.events.event(regarding, "Warning", "evictPodSuccess", "Evicting", message)
        if self._given.audit is not None:
            event = AuditEvent(type="pod", namespace=pod.namespace, name=pod.name, reason="evicted", message=message)
            self._given.audit.record(event, 0)
        self._given.on_evicted(victim)


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
    """Whether the server refuses all requests. 429 is also the response of a disruption budget, which says so."""
    is_budget = any(cause.reason == "DisruptionBudget" for cause in error.details.causes)
    return error.code in _UNAVAILABLE or (error.is_too_many_requests and not is_budget)
