"""Detects which latency-sensitive pods suffer from others, and names suspects; pure: readings in, findings out.

A pod suffers when an indicator of it has left its normal band several times in five minutes, although neither its own
load nor its own CPU limit explains that. Suspects are found as in CPI² (Zhang et al., EuroSys 2013, section 4.2): by
how a pod's activity goes together with the victim's readings over ten minutes. It is advice: nothing is done.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from koordinator.api.nodemetric import NETWORK_DELAY, NETWORK_INDICATORS, PACKET_DROPS, TCP_RETRANSMITS
from koordinator.api.qos import QoSClass
from koordinator.koordlet.observe.interference.normal_band import NormalBand

LATENCY_SENSITIVE: Final = frozenset({QoSClass.LSE, QoSClass.LSR, QoSClass.LS})


class Indicator(StrEnum):
    """How a pod may suffer. The values are those of events, metrics and the NodeMetric."""

    CYCLES = "cpi"
    """Cycles per instruction: caches and memory bandwidth, which others take."""
    CPU = "cpu-pressure"
    """The percentage of the time in which some task waited for a CPU."""
    CPU_WAIT = "cpu-wait"
    """The percentage of the time in which the pod's threads waited for a CPU, of that in which they wanted one: where
    the kernel has no pressure of its cgroup."""
    MEMORY = "memory-pressure"
    """The same for memory, which has to be reclaimed first."""
    IO = "io-pressure"
    """The same for block I/O."""
    RETRANSMITS = TCP_RETRANSMITS
    """The percentage of the TCP segments of the pod that it had to send again."""
    DROPS = PACKET_DROPS
    """The percentage of the packets that the devices of the pod dropped, both ways."""
    DELAY = NETWORK_DELAY
    """Milliseconds that queues add to the round trips of the pod's TCP connections."""


@dataclass(frozen=True, slots=True)
class PodReading:
    """One pod at one time. None is what was not measured."""

    uid: str
    name: str
    """Namespace and name."""
    workload: str
    """Pods of one workload share what is normal for them."""
    qos: QoSClass
    cpu: float | None = None
    """Cores."""
    memory: float | None = None
    """Bytes."""
    io: float | None = None
    """Bytes a second, read and written."""
    throttled: float | None = None
    """The share of periods in which its own CPU limit stopped it."""
    indicators: Mapping[Indicator, float] = field(default_factory=dict)
    network: float | None = None
    """Bytes a second, sent and received, less what was sent again."""

    @property
    def is_latency_sensitive(self) -> bool:
        """Whether it matters that it suffers."""
        return self.qos in LATENCY_SENSITIVE


LEAST_CORRELATION: Final = 0.35
"""CPI²'s: a suspect's activity goes together with the readings at least so well; 1 is the most."""
_WINDOW: Final = 60
"""Rounds that activity is compared over: ten minutes."""
_RECENT: Final = 30
_LEAST_ABNORMAL: Final = 3
"""CPI²'s: so many abnormal readings in the last five minutes, where there is one a minute; else a fifth of them."""
_LEAST_NORMAL: Final = 6
"""One in so many readings of the window has to be normal for anything new to be said about who is to blame."""
_CALM: Final = 6
"""Rounds without an abnormal reading after which it is over."""
_LEAST_RISE: Final = 1.25
"""A suspect is that much more active in abnormal rounds than in the others: who is always busy is none."""
_LOYALTY: Final = 0.15
"""By how much another suspect has to be likelier than the one that was named."""
_OWN_FAULT: Final = 0.75
"""A victim whose own activity correlates that well, as a share of the best suspect's, brings it about itself."""
_SUSPECTS: Final = 3
_BANDS: Final = 4096
"""Normal bands that are kept, of the workloads seen last: some 500 workloads."""
_THROTTLED: Final = 0.1
"""Below this share of periods the pod's own limit explains nothing."""

_FLOORS: Final[Mapping[Indicator, tuple[float, float]]] = {
    Indicator.CYCLES: (0.0, 1.2),
    Indicator.CPU: (5.0, 1.5),
    Indicator.CPU_WAIT: (5.0, 1.5),
    Indicator.MEMORY: (3.0, 1.5),
    Indicator.IO: (5.0, 1.5),
    Indicator.RETRANSMITS: (1.0, 1.5),
    Indicator.DROPS: (0.5, 1.5),
    Indicator.DELAY: (2.0, 1.5),
}
"""The arguments of NormalBand: percentages, cycles per instruction, and milliseconds."""
_OF_CPUS: Final = (Indicator.CPU, Indicator.CPU_WAIT)
OF_CACHES_AND_CPUS: Final = (Indicator.CYCLES, *_OF_CPUS)
OF_NETWORK: Final = tuple(map(Indicator, NETWORK_INDICATORS))
_INDICATORS: Final = tuple(Indicator)
_NOTHING: Final = (0.0,) * len(_INDICATORS)
_OWN_LOAD: Final = (0.05, 1.3)
"""The same for the cores that the pod itself uses."""
_OWN_TRAFFIC: Final = (100_000.0, 1.3)
"""The same for the bytes a second that it sends and receives."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A pod that may be the reason. ``advice`` is ``suppress``, ``pin`` or ``migrate``."""

    uid: str
    name: str
    qos: QoSClass
    correlation: float
    """From LEAST_CORRELATION to 1."""
    confidence: float
    """The correlation times the share of abnormal rounds in which the suspect was busier than usual; 0 to 1."""
    advice: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A pod suffers. ``normal`` and ``limit`` are the mean and the end of its normal band."""

    uid: str
    name: str
    indicator: Indicator
    since: datetime
    value: float
    normal: float
    limit: float
    suspects: tuple[Suspect, ...]
    """The likeliest first; empty where no pod of the node explains it."""


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """One indicator of a pod in one round."""

    value: float
    limit: float
    is_abnormal: bool


@dataclass(slots=True)
class _Round:
    activities: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """By uid of a pod, how much it does of what others may suffer from, in the order of the indicators."""
    evaluated: dict[tuple[str, Indicator], _Evaluated] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Likeness:
    """How the activity of a pod, of one kind, goes together with a victim's readings."""

    kind: Indicator
    correlation: float
    coverage: float
    """The share of the abnormal rounds in which it was busier than usual."""
    rise: float
    """By how much more it did in abnormal rounds, in the unit of its activity."""


@dataclass(frozen=True, slots=True)
class _Suffering:
    since: datetime
    suspects: tuple[Suspect, ...]


class InterferenceDetector:
    """Remembers ten minutes of readings, and for each workload what is normal."""

    def __init__(self) -> None:
        self._bands: dict[tuple[str, str], NormalBand] = {}
        """By workload and indicator, those used last at the end."""
        self._rounds: deque[_Round] = deque(maxlen=_WINDOW)
        self._memory: dict[str, float] = {}
        self._suffering: dict[tuple[str, Indicator], _Suffering] = {}

    def observe(self, readings: Sequence[PodReading], now: datetime) -> list[Finding]:
        """Take one round into account; returns what is wrong after it, by victim and indicator."""
        present = _Round()
        for reading in readings:
            present.activities[reading.uid] = self._activities(reading)
            if reading.is_latency_sensitive:
                self._evaluate(reading, present)
        self._memory = {each.uid: each.memory for each in readings if each.memory is not None}
        self._rounds.append(present)
        while len(self._bands) > _BANDS:
            del self._bands[next(iter(self._bands))]
        findings = [
            finding
            for victim in readings
            if victim.is_latency_sensitive
            for indicator in Indicator
            if (finding := self._finding(victim, indicator, readings, now)) is not None
        ]
        suffering = {(each.uid, each.indicator) for each in findings}
        self._suffering = {key: each for key, each in self._suffering.items() if key in suffering}
        return findings

    def mean(self, uid: str, indicator: Indicator, rounds: int) -> float | None:
        """Of a pod's readings of the last rounds that it does not explain itself; None if there are none."""
        last = list(self._rounds)[-rounds:]
        found = [each.value for round_ in last if (each := round_.evaluated.get((uid, indicator))) is not None]
        return sum(found) / len(found) if found else None

    def _activities(self, reading: PodReading) -> tuple[float, ...]:
        """Cores for three indicators, memory that is taken, bytes read and written, and those of the network."""
        cpu = reading.cpu or 0.0
        grown = 0.0
        if reading.memory is not None and reading.uid in self._memory:
            grown = max(reading.memory - self._memory[reading.uid], 0.0)
        amounts = {Indicator.MEMORY: grown, Indicator.IO: reading.io or 0.0}
        amounts |= dict.fromkeys(OF_NETWORK, reading.network or 0.0)
        return tuple(amounts.get(indicator, cpu) for indicator in _INDICATORS)

    def _evaluate(self, reading: PodReading, present: _Round) -> None:
        """Interference that the pod causes itself is left out, and is not learned as normal either."""
        own_load = own_traffic = False
        if reading.cpu is not None:
            own_load = self._band(reading.workload, "cpu", _OWN_LOAD).learn(reading.cpu)
        if reading.network is not None:
            own_traffic = self._band(reading.workload, "network", _OWN_TRAFFIC).learn(reading.network)
        own_limit = (reading.throttled or 0.0) >= _THROTTLED
        for indicator, value in reading.indicators.items():
            band = self._band(reading.workload, indicator, _FLOORS[indicator])
            limit = band.limit
            explains_itself = own_load or (own_limit and indicator in (*_OF_CPUS, Indicator.CYCLES))
            explains_itself |= own_traffic and indicator in OF_NETWORK
            if not explains_itself:
                present.evaluated[reading.uid, indicator] = _Evaluated(value, limit, band.learn(value))

    def _band(self, workload: str, indicator: str, bounds: tuple[float, float]) -> NormalBand:
        band = self._bands.pop((workload, indicator), None) or NormalBand(*bounds)
        self._bands[workload, indicator] = band
        return band

    def _finding(
        self, victim: PodReading, indicator: Indicator, readings: Sequence[PodReading], now: datetime
    ) -> Finding | None:
        evaluated = [each.evaluated.get((victim.uid, indicator)) for each in self._rounds]
        recent = [each for each in evaluated[-_RECENT:] if each is not None]
        if sum(each.is_abnormal for each in recent) < max(len(recent) // 5, _LEAST_ABNORMAL):
            return None
        if not any(each is not None and each.is_abnormal for each in evaluated[-_CALM:]):
            return None
        last = next(each for each in reversed(evaluated) if each is not None and each.is_abnormal)
        key = (victim.uid, indicator)
        known = self._suffering.get(key)
        normal = sum(each is not None and not each.is_abnormal for each in evaluated)
        if known is None or normal * _LEAST_NORMAL >= sum(each is not None for each in evaluated):
            suspects = self._suspects(victim, indicator, readings, evaluated, known)
            if suspects is None:
                return None
            known = _Suffering(known.since if known is not None else now, suspects)
        self._suffering[key] = known
        mean = self._bands[victim.workload, indicator].mean
        return Finding(victim.uid, victim.name, indicator, known.since, last.value, mean, last.limit, known.suspects)

    def _suspects(
        self,
        victim: PodReading,
        indicator: Indicator,
        readings: Sequence[PodReading],
        evaluated: Sequence[_Evaluated | None],
        known: _Suffering | None,
    ) -> tuple[Suspect, ...] | None:
        """The likeliest first; None if the victim's own activity explains its readings about as well."""
        likeness = {each.uid: found for each in readings if (found := self._likeness(each, indicator, evaluated))}
        own = likeness.pop(victim.uid, None)
        others = [each for each in readings if each.workload != victim.workload and each.uid in likeness]
        best = max((likeness[each.uid].correlation for each in others), default=0.0)
        if own is not None and own.correlation >= best * _OWN_FAULT:
            return None
        # Who is blamed changes for a reason only, not because two come close.
        blamed = known.suspects[0].uid if known is not None and known.suspects else ""
        largest: dict[Indicator, float] = {}
        for pod in others:
            found = likeness[pod.uid]
            largest[found.kind] = max(largest.get(found.kind, 0.0), found.rise)

        def likelihood(pod: PodReading) -> float:
            found = likeness[pod.uid]
            return found.correlation * math.sqrt(found.rise / largest[found.kind]) + _LOYALTY * (pod.uid == blamed)

        others.sort(key=lambda pod: (-likelihood(pod), pod.name))
        return tuple(_suspect(pod, likeness[pod.uid], indicator) for pod in others[:_SUSPECTS])

    def _likeness(
        self, pod: PodReading, indicator: Indicator, evaluated: Sequence[_Evaluated | None]
    ) -> Likeness | None:
        """What the pod does that goes together with the readings best; None if nothing does well enough."""
        kinds = (indicator,) if indicator is not Indicator.MEMORY else (Indicator.MEMORY, Indicator.CPU)
        found: Likeness | None = None
        for kind in kinds:
            place = _INDICATORS.index(kind)
            activity = [each.activities.get(pod.uid, _NOTHING)[place] for each in self._rounds]
            compared = compare(kind, activity, evaluated)
            if compared is not None and (found is None or compared.correlation > found.correlation):
                found = compared
        return found if found is not None and found.correlation >= LEAST_CORRELATION else None


def compare(kind: Indicator, activity: Sequence[float], evaluated: Sequence[_Evaluated | None]) -> Likeness | None:
    """How what a pod does beyond its usual goes together with a victim's readings; None where it does no more.

    The correlation is CPI²'s: with the activity of all rounds adding up to 1, each round counts its activity times
    ``1 - limit / value`` above the limit, and ``value / limit - 1`` below it. CPI² takes the whole activity; what a pod
    does all the time would hide there what it does more.
    """
    pairs = [(amount, each) for amount, each in zip(activity, evaluated, strict=True) if each and each.limit < math.inf]
    abnormal = [amount for amount, each in pairs if each.is_abnormal]
    others = [amount for amount, each in pairs if not each.is_abnormal]
    if not abnormal or not others:
        return None
    usual = sum(others) / len(others)
    if sum(abnormal) / len(abnormal) <= usual * _LEAST_RISE:
        return None
    total = sum(max(amount - usual, 0.0) for amount, _ in pairs)
    correlation = 0.0
    for amount, each in pairs:
        weight = max(amount - usual, 0.0) / total
        correlation += weight * (
            1 - each.limit / each.value if each.is_abnormal else min(each.value / each.limit - 1, 0)
        )
    busier = sum(amount > usual * _LEAST_RISE for amount in abnormal)
    return Likeness(kind, correlation, busier / len(abnormal), sum(abnormal) / len(abnormal) - usual)


def _suspect(pod: PodReading, found: Likeness, indicator: Indicator) -> Suspect:
    confidence = found.correlation * found.coverage
    return Suspect(pod.uid, pod.name, pod.qos, found.correlation, confidence, _advice(pod.qos, indicator))


def _advice(qos: QoSClass, indicator: Indicator) -> str:
    """Batch pods can be held down; others can be kept to CPUs of their own, which helps against nothing but waiting for
    CPUs, or have to go elsewhere."""
    if qos is QoSClass.BE:
        return "suppress"
    return "pin" if indicator in _OF_CPUS else "migrate"
