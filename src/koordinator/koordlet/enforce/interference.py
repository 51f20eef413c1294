"""Carries out the remedies against pods that disturb others: what is decided, what is evicted, what is reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordinator.api.resource_names import MEMORY
from koordinator.base.loops import Loop
from koordinator.koordlet import features
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.enforce.evictions import Evictor
from koordinator.koordlet.enforce.hooks import network_classes
from koordinator.koordlet.enforce.node_snapshot import SnapshotSources
from koordinator.koordlet.enforce.strategies import eviction, interference_remedies
from koordinator.koordlet.enforce.strategies.interference_remedies import Measured, RemedyState
from koordinator.koordlet.enforce.strategies.snapshot import Decision, Snapshot, Strategy
from koordinator.koordlet.observe.interference.monitor import InterferenceMonitor
from koordinator.koordlet.report.remedies import RemedyReport
from koordinator.kube.events import EventRecorder

_DEADLINE: Final = 30.0


class InterferenceRemedies:
    """Add its ``strategy`` and its ``loop`` to those of the agent."""

    def __init__(
        self, context: AgentContext, sources: SnapshotSources, monitor: InterferenceMonitor, events: EventRecorder
    ) -> None:
        self._context = context
        self._sources = sources
        self._monitor = monitor
        self._state = RemedyState()
        self._observes_only = context.options.enforcement.observe_only
        options, given = context.options, context.given
        self.report = RemedyReport(options.node_name, events, context.metrics, given.clock)

    @property
    def strategy(self) -> Strategy:
        interval = self._context.options.collectors.interference_interval
        return Strategy(interference_remedies.OWNER, interval, self._decide, reads_best_effort=True)

    def bandwidths(self) -> Mapping[str, int]:
        """Bits per second, by UID, that pods may send at most; for TCNetworkQoS."""
        return self._state.bandwidths()

    def loop(self, evictor: Evictor) -> Loop:
        """Evicts the pods that are to be scheduled again."""

        async def evict() -> None:
            leaving, present = self._state.leaving(), {usage.pod.uid: usage for usage in self._sources.pods}
            evictor.forget(present.keys())
            for uid, victim in leaving.items():
                usage = present.get(uid)
                if usage is None or interference_remedies.stays_here(usage):
                    continue
                # In a plan of its own: what one victim releases counts for all tasks of a plan, and each is to go.
                task = eviction.Task(
                    eviction.Feature.INTERFERENCE,
                    eviction.Basis.USAGE,
                    {MEMORY: 1},
                    (usage,),
                    f"it disturbs {victim}",
                )
                await evictor.carry_out(eviction.EvictionPlan((task,)), present.keys())

        interval = self._context.options.collectors.interference_interval
        return Loop("evictions for interference", evict, interval, _DEADLINE)

    def _decide(self, snapshot: Snapshot) -> Decision:
        given, policy, options = self._context.given, self._sources.policy, self._context.options
        observes_only = options.enforcement.observe_only
        if observes_only != self._observes_only:
            # What was only observed has brought nothing, and what has been taken back brings nothing any more.
            self._observes_only, self._state = observes_only, RemedyState(touched=self._state.touched)
        is_on = options.features.enabled(features.TC_NETWORK_QOS) and given.traffic_control is not None
        decision, self._state = interference_remedies.decide(
            snapshot,
            self._sources.bandwidths_of(snapshot),
            Measured(self._monitor.findings, self._monitor.mean, self._monitor.sent),
            policy.interference,
            self._state,
            given.clock.monotonic(),
            shapes_network=is_on and policy.spec is not None and network_classes.is_enabled(policy.spec),
            is_carried_out=not observes_only,
        )
        # What is not carried out is not reported as done, nor what was done before.
        self.report.observe(RemedyState() if observes_only else self._state)
        return decision
