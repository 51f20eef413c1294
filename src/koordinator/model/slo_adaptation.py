"""How far a node's co-location is taken back while its online pods suffer, or while its agent cannot be believed.

A node has a level, from 0 (what is configured holds) to the strategy's number of steps (the floors hold). With evidence
it rises, by one step at a time and at most one in the hold time; after each recovery time without evidence it falls by
one step. Without a report to go by it stays. All that is remembered is in the annotation of the Node, so that a restart
or another leader continues the same. Whole seconds are written there, rounded up, so that no time comes out shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from koordinator.api.adaptive_slo import AdaptiveSLOState, AdaptiveSLOStrategy
from koordinator.api.codec import convert
from koordinator.api.cpu_burst import CPUBurstStrategy
from koordinator.api.meta import EXTENSIONS_MEMBER, FreeForm, WireStruct
from koordinator.api.nodemetric import INTERFERENCE, NETWORK_INDICATORS
from koordinator.api.qos import QoSClass
from koordinator.api.resource_threshold import ResourceThresholdStrategy

_LONGEST_REASON: Final = 500
"""Letters: it contains what agents report, and an annotation has to stay small."""
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one look at a node comes to. ``reasons`` are sentences, one for each thing that is wrong."""

    reasons: tuple[str, ...] = ()
    is_known: bool = True
    """Whether there is a report to go by: without one, a node is not calm."""


class Lowered(NamedTuple):
    """A field of the configuration, in percent, and what holds on a node instead."""

    name: str
    configured: int
    now: int


@dataclass(frozen=True, slots=True)
class AdaptiveSLO:
    """A strategy with all its values: ``steps``, times, and floors in percent."""

    steps: int
    hold: timedelta
    recover: timedelta
    cpu_suppress: int
    cfs_quota_burst: int
    cpu_reclaim: int
    memory_reclaim: int
    score: int

    @classmethod
    def of(cls, strategy: AdaptiveSLOStrategy) -> AdaptiveSLO | None:
        """Of a strategy that has all its values, as those of the configuration do; None where it is switched off."""
        if not strategy.enable:
            return None
        full = msgspec.structs.asdict(strategy)
        return cls(
            steps=full["steps"],
            hold=timedelta(seconds=full["hold_seconds"]),
            recover=timedelta(seconds=full["recover_seconds"]),
            cpu_suppress=full["cpu_suppress_floor_percent"],
            cfs_quota_burst=full["cfs_quota_burst_floor_percent"],
            cpu_reclaim=full["cpu_reclaim_floor_percent"],
            memory_reclaim=full["memory_reclaim_floor_percent"],
            score=full["score_floor_percent"],
        )

    def next_state(self, before: AdaptiveSLOState | None, evidence: Evidence, now: datetime) -> AdaptiveSLOState | None:
        """The state after one more look. None for a node that has never been adapted."""
        if before is None:
            return self._stepped(self._at(now), 1, now, evidence) if evidence.reasons else None
        state = self._continued(before, now)
        since, calm_from = state.since or now, state.calm_from or now
        if (evidence.reasons or (state.level and not evidence.is_known)) and calm_from <= now:
            # Not at every look: each change is written to the Node.
            state = msgspec.structs.replace(state, calm_from=_later(now, self.hold))
        if evidence.reasons and state.level < self.steps and now >= since + self.hold:
            return self._stepped(state, state.level + 1, now, evidence)
        if evidence.is_known and not evidence.reasons and self._is_calm(state, now):
            return self._stepped(state, state.level - 1, now, evidence)
        return state

    def next_look(self, state: AdaptiveSLOState | None, now: datetime) -> datetime | None:
        """When the passing of time alone may change the level next."""
        if state is None or state.since is None:
            return None
        moments = (state.since + self.hold if state.level < self.steps else None, self.back_at(state))
        return min((moment for moment in moments if moment is not None and moment > now), default=None)

    def back_at(self, state: AdaptiveSLOState) -> datetime | None:
        """When one step is taken back, at the earliest; None where none is."""
        if not state.level or state.since is None:
            return None
        return max(state.since, state.calm_from or state.since) + max(self.recover, self.hold)

    def lowered(self, configured: int, floor: int, state: AdaptiveSLOState) -> int:
        """A value at the state's level. It is never above what is configured, nor below the floor."""
        if configured <= floor:
            return configured
        return configured - (configured - floor) * min(state.level, self.steps) // self.steps

    def is_at_end(self, state: AdaptiveSLOState | None) -> bool:
        """Whether no step is left."""
        return state is not None and state.level >= self.steps

    def threshold(self, strategy: ResourceThresholdStrategy, state: AdaptiveSLOState) -> ResourceThresholdStrategy:
        """To which use of CPUs best-effort pods are throttled."""
        percent = strategy.cpu_suppress_threshold_percent
        if percent is None:
            return strategy
        lowered = self.lowered(percent, self.cpu_suppress, state)
        return msgspec.structs.replace(strategy, cpu_suppress_threshold_percent=lowered)

    def burst(self, strategy: CPUBurstStrategy, state: AdaptiveSLOState) -> CPUBurstStrategy:
        """How far containers may exceed their CPU limit."""
        percent = strategy.cfs_quota_burst_percent
        if percent is None:
            return strategy
        lowered = self.lowered(percent, self.cfs_quota_burst, state)
        return msgspec.structs.replace(strategy, cfs_quota_burst_percent=lowered)

    def _at(self, now: datetime) -> AdaptiveSLOState:
        return AdaptiveSLOState(level=0, steps=self.steps, since=_later(now), calm_from=_later(now))

    def _continued(self, state: AdaptiveSLOState, now: datetime) -> AdaptiveSLOState:
        """As it was written, but within this strategy: it may have had more steps, and the clock may have been set
        back since."""
        since = min(state.since or now, now + _SECOND)
        calm_from = min(state.calm_from or since, now + self.hold + _SECOND)
        level = min(max(state.level, 0), self.steps)
        return self._with_level(state, level, since=_later(since), calm_from=_later(calm_from))

    def _stepped(self, state: AdaptiveSLOState, level: int, now: datetime, evidence: Evidence) -> AdaptiveSLOState:
        since = _later(now)
        if not evidence.reasons:
            return self._with_level(state, level, since=since, calm_from=state.calm_from)
        stepped = self._with_level(state, level, since=since, calm_from=_later(now, self.hold))
        return msgspec.structs.replace(stepped, reason=_reason(evidence.reasons))

    def _with_level(
        self, state: AdaptiveSLOState, level: int, *, since: datetime, calm_from: datetime | None
    ) -> AdaptiveSLOState:
        at_level = msgspec.structs.replace(state, level=level, steps=self.steps, since=since, calm_from=calm_from)
        return msgspec.structs.replace(at_level, score_percent=self.lowered(100, self.score, at_level))

    def _is_calm(self, state: AdaptiveSLOState, now: datetime) -> bool:
        back_at = self.back_at(state)
        return back_at is not None and now >= back_at


def _later(now: datetime, span: timedelta = timedelta()) -> datetime:
    """After a span, rounded up to a whole second."""
    moment = now + span
    return moment if not moment.microsecond else moment.replace(microsecond=0) + _SECOND


def _reason(reasons: tuple[str, ...]) -> str:
    more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    return f"{reasons[0][:_LONGEST_REASON]}{more}"


class _Suspect(WireStruct):
    pod: str = ""
    qos: str = ""


class _Interference(WireStruct):
    """What is read of a finding in the NodeMetric."""

    indicator: str = ""
    value: float = 0.0
    limit: float = 0.0
    suspects: list[_Suspect] = []


def suffering(pod: str, extensions: FreeForm) -> tuple[str, ...]:
    """How an online pod suffers from best-effort pods, as its node's agent reports it.

    What another online pod does to it cannot be taken back here, and what it suffers on the network is neither of the
    CPUs nor of the memory that are. Raises DecodeError.
    """
    members = extensions.get(EXTENSIONS_MEMBER) or {}
    found = members.get(INTERFERENCE) if isinstance(members, dict) else members
    if not found:
        return ()
    return tuple(
        f"{each.indicator} of pod {pod} is {each.value:g}, above {each.limit:g}"
        + (f", with {each.suspects[0].pod} as the suspect" if each.suspects else "")
        for each in convert(found, list[_Interference])
        if each.indicator not in NETWORK_INDICATORS
        if not each.suspects or each.suspects[0].qos == QoSClass.BE.value
    )
