"""Feeds the detection with measurements, and reports what it finds: by events, metrics and the NodeMetric."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from koordinator.api.meta import ObjectReference, controller_of
from koordinator.api.nodemetric import INTERFERENCE
from koordinator.api.timestamps import format_time
from koordinator.base.loops import Loop
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.agent_context import AgentContext
from koordinator.koordlet.agent_metrics import Rows
from koordinator.koordlet.observe.cycles import CyclesRound
from koordinator.koordlet.observe.interference.cpu_waits import CPUWaits
from koordinator.koordlet.observe.interference.detection import (
    LATENCY_SENSITIVE,
    Finding,
    Indicator,
    InterferenceDetector,
    PodReading,
)
from koordinator.koordlet.observe.interference.pod_traffic import PodTraffic, Traffic
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.observation import Observation
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node.errors import FileError, OddRowError

logger = logging.getLogger(__name__)

_COMPONENT: Final = "koordlet-interference"
_UNITS: Final = {Indicator.CYCLES: "", Indicator.DELAY: " ms"}
_PRESSURES: Final = {"cpu": Indicator.CPU, "memory": Indicator.MEMORY, "io": Indicator.IO}


class InterferenceMonitor:
    """``observe`` is one round, in the loop ``loop``."""

    def __init__(self, context: AgentContext, observation: Observation) -> None:
        """Goes by the pressure and the cycles of ``observation``, and by the network of the pods; where the kernel has
        no pressure of pods, by how long their threads wait for a CPU."""
        self._states = context.states
        self._usage = context.recent_usage
        self._observation = observation
        self._reader = observation.reader
        self._waits = CPUWaits(context.options.host, observation.reader)
        self._traffic = PodTraffic(context.options.host, observation.reader, context.given.read_delays)
        self._interval = context.options.collectors.interference_interval
        self._metrics = metrics = context.metrics
        self._said = SaidOnce(logger)
        self._odd_rows: list[OddRowError] = []
        self._events = context.events.recorder(_COMPONENT)
        self._clock = context.given.clock
        self._detector = InterferenceDetector()
        self._cycles: CyclesRound | None = None
        self._io: dict[str, tuple[float, int]] = {}
        """By uid of a pod, when its bytes were read and how many there were."""
        self._sent: Mapping[str, float] = {}
        """Bytes a second on the network, by uid of a pod."""
        self.findings: Sequence[Finding] = ()
        """Of the last round."""
        self._named: dict[tuple[str, Indicator], tuple[Finding, str]] = {}
        """What events have reported, with the UID of the first suspect."""
        metrics.latest(
            "pod_interference_correlation",
            "How well what a suspect does goes together with what a latency-sensitive pod suffers from, 0 to 1",
            ("pod_uid", "pod_name", "pod_namespace", "indicator", "suspect_namespace", "suspect_name"),
            self._rows,
        )

    @property
    def loop(self) -> Loop:
        return Loop("interference", self.observe, self._interval, 30.0)

    async def observe(self) -> None:
        pods = [pod for pod in self._states.pods if not pod.has_finished]
        indicators = self._indicators()
        self._add_waits(pods, indicators)
        with self._said.round():
            self._odd_rows.clear()
            traffic = await self._traffic.measure(pods, self._clock.monotonic(), self._odd_rows)
            self._sent = {uid: each.sent for uid, each in traffic.items()}
            readings = [self._reading(pod, indicators.get(pod.uid, {}), traffic.get(pod.uid)) for pod in pods]
            self._metrics.count_odd_rows(self._odd_rows)
            for row in self._odd_rows:
                self._said.say(f"left out: {row}", row.path)
        self._io = {uid: read for uid, read in self._io.items() if uid in {pod.uid for pod in pods}}
        self.findings = self._detector.observe(readings, self._clock.now())
        self._record_events({pod.uid: pod for pod in pods})

    def mean(self, uid: str, indicator: Indicator, seconds: float) -> float | None:
        """Of an indicator of a pod over the last seconds, but for what the pod explains itself; None if it was not
        measured."""
        return self._detector.mean(uid, indicator, max(round(seconds / self._interval), 1))

    def sent(self, uid: str) -> float | None:
        """Bytes a second that a pod sent in the last round; None if it was not measured."""
        return self._sent.get(uid)

    def extensions(self) -> Mapping[str, Mapping[str, Any]]:
        """By uid of a pod that suffers, what its entry of the NodeMetric says of it, by key."""
        found: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for finding in self.findings:
            found.setdefault(finding.uid, {INTERFERENCE: []})[INTERFERENCE].append(_document(finding))
        return found

    def _indicators(self) -> dict[str, dict[Indicator, float]]:
        """By uid of a pod. Cycles are counted once a minute: each count is taken into account once."""
        found: dict[str, dict[Indicator, float]] = {}
        for each in self._observation.pressure.latest.pressures:
            if each.container is None:
                values = {_PRESSURES[resource]: pressure.some.avg10 for resource, pressure in each.pressures.items()}
                found[each.pod.uid] = values
        cycles = self._observation.cycles.latest
        if cycles is not self._cycles:
            self._cycles = cycles
            totals: dict[str, list[float]] = {}
            for count in cycles.counts:
                total = totals.setdefault(count.pod.uid, [0.0, 0.0])
                total[0] += count.cycles
                total[1] += count.instructions
            for uid, (spent, done) in totals.items():
                if done > 0:
                    found.setdefault(uid, {})[Indicator.CYCLES] = spent / done
        return found

    def _add_waits(self, pods: Sequence[NodePod], indicators: dict[str, dict[Indicator, float]]) -> None:
        unmeasured = [
            pod
            for pod in pods
            if pod.qos_with_default in LATENCY_SENSITIVE and Indicator.CPU not in indicators.get(pod.uid, {})
        ]
        for uid, share in self._waits.measure(unmeasured, self._clock.monotonic()).items():
            indicators.setdefault(uid, {})[Indicator.CPU_WAIT] = share

    def _reading(self, pod: NodePod, indicators: Mapping[Indicator, float], traffic: Traffic | None) -> PodReading:
        usage = self._usage
        # No round without a sample, or a pod would seem to rest.
        window = max(self._interval, 2 * usage.interval)
        return PodReading(
            uid=pod.uid,
            name=pod.pod.metadata.key,
            workload=_workload(pod),
            qos=pod.qos_with_default,
            cpu=usage.average(kinds.POD_CPU_USAGE, window, pod_uid=pod.uid),
            memory=usage.present().memory(usage.table.pods.get(pod.uid)),
            io=self._io_rate(pod),
            throttled=usage.average(kinds.POD_CPU_THROTTLED, window, pod_uid=pod.uid),
            indicators={**indicators, **traffic.indicators} if traffic is not None else indicators,
            network=traffic.useful if traffic is not None else None,
        )

    def _io_rate(self, pod: NodePod) -> float | None:
        """Bytes a second since the last round; None for the first, and where the kernel does not count them."""
        try:
            read, odd = self._reader.io_bytes, self._odd_rows.append
            total = sum(read(container.cgroup, odd) for container in pod.containers)
        except FileError:
            self._io.pop(pod.uid, None)
            return None
        now, known = self._clock.monotonic(), self._io.get(pod.uid)
        self._io[pod.uid] = now, total
        if known is None or now <= known[0] or total < known[1]:
            # The first time, or a container was restarted.
            return None
        return (total - known[1]) / (now - known[0])

    def _record_events(self, pods: Mapping[str, NodePod]) -> None:
        """One event when it begins, one for another first suspect, one when it is over."""
        present = {(each.uid, each.indicator): each for each in self.findings}
        for key, (finding, _) in list(self._named.items()):
            if key not in present:
                del self._named[key]
                if key[0] in pods:
                    note = f"{finding.indicator} is normal again"
                    self._event(pods[key[0]], "Normal", "InterferenceEnded", note)
        for key, finding in present.items():
            blamed = finding.suspects[0].uid if finding.suspects else ""
            if key in self._named and self._named[key][1] == blamed:
                continue
            self._named[key] = finding, blamed
            self._event(pods[key[0]], "Warning", "InterferenceDetected", sentence(finding))

    def _event(self, pod: NodePod, type_: Any, reason: str, note: str) -> None:
        metadata = pod.pod.metadata
        logger.info("pod %s: %s", metadata.key, note)
        regarding = ObjectReference("v1", "Pod", metadata.namespace, metadata.name, metadata.uid)
        self._events.event(regarding, type_, reason, "Observing", note)

    def _rows(self) -> Rows:
        for finding in self.findings:
            namespace, _, name = finding.name.partition("/")
            for suspect in finding.suspects:
                other_namespace, _, other = suspect.name.partition("/")
                labels = (finding.uid, name, namespace, finding.indicator.value, other_namespace, other)
                yield labels, suspect.correlation


def sentence(finding: Finding) -> str:
    """What an event says: ``cpu-pressure is 42.1 %, normally 3.2 % (limit 9.9 %); suspect: …``."""
    unit = _UNITS.get(finding.indicator, " %")
    text = f"{finding.indicator} is {finding.value:.1f}{unit}, normally {finding.normal:.1f}{unit} "
    text += f"(limit {finding.limit:.1f}{unit}); "
    if not finding.suspects:
        return text + "no pod of the node explains it"
    first = finding.suspects[0]
    return text + (
        f"suspect: {first.qos.value} pod {first.name} (correlation {first.correlation:.2f}, "
        f"confidence {first.confidence:.2f}), advice: {first.advice} it"
    )


def _document(finding: Finding) -> dict[str, Any]:
    return {
        "indicator": finding.indicator.value,
        "since": format_time(finding.since),
        "value": round(finding.value, 2),
        "normal": round(finding.normal, 2),
        "limit": round(finding.limit, 2),
        "suspects": [
            {
                "pod": each.name,
                "qos": each.qos.value,
                "correlation": round(each.correlation, 2),
                "confidence": round(each.confidence, 2),
                "advice": each.advice,
            }
            for each in finding.suspects
        ],
    }


def _workload(pod: NodePod) -> str:
    """Pods of one controller are alike; a pod without one is its own workload."""
    metadata = pod.pod.metadata
    owner = controller_of(metadata)
    return f"{metadata.namespace}/{owner.kind}/{owner.name}" if owner is not None else metadata.key
