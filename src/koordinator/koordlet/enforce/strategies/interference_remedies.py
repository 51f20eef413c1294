"""Remedies against best-effort pods that disturb others, where the NodeSLO says so: what each does to the pod.

A cap leaves the pod a part of the CPU that it used, or of the bandwidth where it disturbs others on the network and
TCNetworkQoS shares that out. Pinning keeps it off the caches of the victim, else off its cores; a victim without CPUs
of its own is left half of them. Which remedy is in force when is in ``interference_cases``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from koordinator.api.cpu_list import format_cpu_list
from koordinator.api.meta import controller_of
from koordinator.api.qos import KubernetesQoS, QoSClass
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.policy import InterferenceStrategy
from koordinator.koordlet.enforce.strategies import eviction
from koordinator.koordlet.enforce.strategies.interference_cases import (
    Case,
    Hold,
    Remedy,
    Terms,
    blame,
    next_case,
)
from koordinator.koordlet.enforce.strategies.snapshot import STATIC, Decision, PodUsage, Snapshot
from koordinator.koordlet.observe.interference.detection import OF_CACHES_AND_CPUS, OF_NETWORK, Finding, Indicator
from koordinator.koordlet.pods.kubelet_bandwidths import Bandwidth
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node.cgroup_reader import NO_LIMIT
from koordinator.node.cpu_topology import CPUTopology
from koordinator.node.kernel_files import CPU_QUOTA, CPUSET, LEAST_QUOTA, PERIOD, Target

OWNER: Final = "interference-remedies"
_LEAST_QUOTA: Final = 10_000
"""A tenth of a CPU: a pod that is limited still makes progress (CPI² leaves as much to batch jobs)."""
_LEAST_BANDWIDTH: Final = 1_000_000
"""Bits per second, for the same reason."""
_BITS: Final = 8
_MOST_CASES: Final = 64
"""At once on a node; more are not begun."""


@dataclass(frozen=True, slots=True)
class RemedyState:
    """The cases by their key; ``touched`` are the UIDs of pods whose quota was capped since the start."""

    cases: Mapping[tuple[str, str, Indicator], Case] = field(default_factory=dict)
    touched: frozenset[str] = frozenset()

    def holds(self, uid: str) -> list[tuple[Case, Hold]]:
        """What holds for a pod."""
        found = ((case, case.in_force) for case in self.cases.values() if case.suspect == uid)
        return [(case, trial.hold) for case, trial in found if trial is not None]

    def bandwidths(self) -> dict[str, int]:
        """Bits per second, by UID of a pod, that it may send at most."""
        found: dict[str, int] = {}
        for case in self.cases.values():
            trial = case.in_force
            if trial is not None and trial.hold.bandwidth is not None:
                bits = trial.hold.bandwidth << case.steps_back
                found[case.suspect] = min(found.get(case.suspect, bits), bits)
        return found

    def leaving(self) -> dict[str, str]:
        """By UID of the pods that are to be evicted, whom each disturbs."""
        found = ((case, case.in_force) for case in self.cases.values())
        return {case.suspect: case.victim_name for case, trial in found if trial and trial.remedy is Remedy.MIGRATE}

    def caps(self, uid: str, since: float) -> list[Hold]:
        """Those of a pod that are in force, or were until after ``since``: what it does is less for that."""
        return [
            trial.hold
            for case in self.cases.values()
            for trial in case.trials
            if case.suspect == uid and trial.remedy is Remedy.CAP and (trial.ended is None or trial.ended > since)
        ]


@dataclass(frozen=True, slots=True)
class Measured:
    """What the detection knows."""

    findings: Iterable[Finding]
    mean: Callable[[str, Indicator, float], float | None]
    """Of an indicator of a pod over so many seconds."""
    sent: Callable[[str], float | None]
    """Bytes a second of a pod."""


def decide(
    snapshot: Snapshot,
    bandwidths: Mapping[str, Mapping[str, Bandwidth]],
    measured: Measured,
    strategy: InterferenceStrategy,
    state: RemedyState,
    now: float,
    *,
    shapes_network: bool,
    is_carried_out: bool = True,
) -> tuple[Decision, RemedyState]:
    """Remedies against the pods that are blamed with enough confidence. All other best-effort pods go back to the quota
    that the kubelet gives them, as ``bandwidths`` have it by UID, so that nothing stays behind, whatever had capped
    them before a restart; where the NodeSLO does not switch it on, those alone that had a cap. Their CPUs are those of
    CPU suppress, and their bandwidth that of TCNetworkQoS, as soon as there is nothing else.

    ``shapes_network``: whether TCNetworkQoS is on. Not ``is_carried_out``: nothing is done, and so nothing measured.
    """
    everybody = {usage.pod.uid: usage for usage in snapshot.pods}
    pods = {uid: usage for uid, usage in everybody.items() if usage.pod.is_best_effort}
    cases = _cases(everybody, measured.findings, strategy, state, now) if strategy.suppress else {}
    terms = Terms(strategy.remedies, strategy.window_seconds if is_carried_out else math.inf, strategy.cap_seconds)
    state = RemedyState(cases, state.touched)
    for key, case in list(cases.items()):
        signal = measured.mean(case.victim, case.indicator, strategy.window_seconds)
        caps = state.caps(case.suspect, now - strategy.window_seconds)
        offer = partial(_offer, case, snapshot, everybody, measured, strategy, caps, shapes_network=shapes_network)
        following = next_case(case, signal, terms, offer, now)
        if following is None:
            del cases[key]
        else:
            cases[key] = following
    capped = {case.suspect for case in state.cases.values() if case.in_force and case.in_force.hold.quota is not None}
    touched = (state.touched & pods.keys()) | (capped & pods.keys())
    meant = pods if strategy.suppress else {uid: pods[uid] for uid in touched}
    settings = [
        setting
        for uid, usage in meant.items()
        for setting in usage.pod.derived(_quotas, _quota(state.holds(uid)), bandwidths.get(uid, {}))
    ]
    for uid, usage in pods.items():
        settings += _cpusets(usage.pod, state.holds(uid), snapshot)
    held = {case.suspect for case in state.cases.values() if case.in_force}
    reason = f"{len(held)} pods are held back" if strategy.suppress else "the NodeSLO does not switch it on"
    return Decision(tuple(settings), reason), RemedyState(state.cases, frozenset(touched))


def _cases(
    pods: Mapping[str, PodUsage],
    findings: Iterable[Finding],
    strategy: InterferenceStrategy,
    state: RemedyState,
    now: float,
) -> dict[tuple[str, str, Indicator], Case]:
    """Those of pods that are there, with what the findings say; a pod that was evicted need not be there."""
    cases = {
        key: case
        for key, case in state.cases.items()
        if case.victim in pods and (case.suspect in pods or _is_evicted(case))
    }
    for finding in findings:
        if not finding.suspects:
            of_victim = [each for key, each in cases.items() if key == (finding.uid, key[1], finding.indicator)]
            cases |= {each.key: blame(each, finding, now) for each in of_victim if each.has_helped}
            continue
        first = finding.suspects[0]
        if first.uid not in pods or not pods[first.uid].pod.is_best_effort:
            continue
        if first.advice != "suppress" or first.confidence * 100 < strategy.confidence_percent:
            continue
        key = finding.uid, first.uid, finding.indicator
        if key in cases or len(cases) < _MOST_CASES:
            cases[key] = blame(cases.get(key), finding, now)
    return cases


def _is_evicted(case: Case) -> bool:
    return bool(case.trials) and case.trials[-1].remedy is Remedy.MIGRATE


def _offer(
    case: Case,
    snapshot: Snapshot,
    pods: Mapping[str, PodUsage],
    measured: Measured,
    strategy: InterferenceStrategy,
    caps: Sequence[Hold],
    remedy: Remedy,
    *,
    shapes_network: bool,
) -> Hold | str | None:
    suspect, victim = pods.get(case.suspect), pods[case.victim].pod
    if suspect is None:
        return "it is gone"
    match remedy:
        case Remedy.CAP if case.indicator in OF_NETWORK:
            return _bandwidth_cap(suspect.pod, measured, strategy, caps, shapes_network=shapes_network)
        case Remedy.CAP:
            return _cpu_cap(suspect, strategy, caps)
        case Remedy.PIN:
            return _pin(suspect.pod, victim, case.indicator, snapshot)
    return stays_here(suspect) or Hold("it is evicted")


def stays_here(usage: PodUsage) -> str:
    """Why it is of no use to evict a pod, or not allowed; empty if it is."""
    if usage.pod.is_static or not eviction.permits(usage, eviction.Feature.INTERFERENCE):
        return "it may not be evicted"
    owner = controller_of(usage.pod.pod.metadata)
    return "its DaemonSet would put it here again" if owner is not None and owner.kind == "DaemonSet" else ""


def _cpu_cap(usage: PodUsage, strategy: InterferenceStrategy, caps: Iterable[Hold]) -> Hold | None:
    for hold in caps:
        if hold.quota is not None:
            # Of what it used before it was capped.
            return hold
    if usage.cpu is None:
        # Not measured just now: in the next round.
        return None
    quota = max(math.trunc(usage.cpu * PERIOD * strategy.cap_percent / 100), _LEAST_QUOTA)
    return Hold(f"{quota / PERIOD:.2f} of {usage.cpu:.2f} cores", quota=quota)


def _bandwidth_cap(
    pod: NodePod, measured: Measured, strategy: InterferenceStrategy, caps: Iterable[Hold], *, shapes_network: bool
) -> Hold | str | None:
    if not shapes_network:
        return "TCNetworkQoS does not share out the bandwidth of the node"
    if pod.qos is not QoSClass.BE:
        return "TCNetworkQoS has no class for a pod without the label koordinator.sh/qosClass"
    for hold in caps:
        if hold.bandwidth is not None:
            return hold
    sent = measured.sent(pod.uid)
    if sent is None:
        return None
    bits = sent * _BITS
    kept = max(math.trunc(bits * strategy.cap_percent / 100), _LEAST_BANDWIDTH)
    if kept >= bits:
        return f"it sends {bits / 1e6:.1f} Mbit/s, and what it receives is not limited here"
    return Hold(f"{kept / 1e6:.1f} of {bits / 1e6:.1f} Mbit/s", bandwidth=kept)


def _pin(pod: NodePod, victim: NodePod, indicator: Indicator, snapshot: Snapshot) -> Hold | str | None:
    if indicator not in OF_CACHES_AND_CPUS:
        return f"other CPUs do not help against {indicator.value}"
    if pod.kubernetes_qos != KubernetesQoS.BEST_EFFORT or pod.allocation.cpus:
        return "its CPUs are not those of the best-effort pods"
    if snapshot.topology is None:
        return None
    allowed = snapshot.allowed_cpus - snapshot.kubelet_cpus
    if snapshot.best_effort is not None and snapshot.best_effort.cpuset is not None:
        # Where CPU suppress has left them fewer, no others.
        allowed &= snapshot.best_effort.cpuset
    cpus = away_from(victim.allocation.cpus, allowed, snapshot.topology)
    if not cpus:
        return "there are no CPUs away from those of the victim"
    return Hold(f"CPUs {format_cpu_list(cpus)} of {format_cpu_list(allowed)}", cpus=cpus)


def away_from(own: frozenset[int], allowed: frozenset[int], topology: CPUTopology) -> frozenset[int]:
    """Those of ``allowed`` that share no last-level cache with the victim's own CPUs, else no core. A victim without
    CPUs of its own runs on all of them, and is left the first half of the caches, else of the cores. Empty where there
    are none."""
    for groups in (topology.by_l3, topology.by_core):
        usable = [cpus for _, cpus in sorted(groups.items()) if not allowed.isdisjoint(cpus)]
        # Half of them, rounded up, are the victim's.
        away = [cpus for cpus in usable if own.isdisjoint(cpus)] if own else usable[(len(usable) + 1) // 2 :]
        if found := allowed.intersection(cpu for cpus in away for cpu in cpus):
            return found
    return frozenset()


def _quota(holds: Iterable[tuple[Case, Hold]]) -> tuple[int, str] | None:
    """The lowest, and why."""
    quotas = [
        (hold.quota << case.steps_back, f"it disturbs {case.victim_name} ({case.indicator}): {hold.text}")
        for case, hold in holds
        if hold.quota is not None
    ]
    return min(quotas, default=None)


def _quotas(
    pod: NodePod, cap: tuple[int, str] | None, bandwidths: Mapping[str, Bandwidth]
) -> tuple[DesiredSetting, ...]:
    """For the pod, and for its containers with quotas: version 1 takes no child with more than its parent."""
    settings: list[DesiredSetting] = []
    for folder in (pod.cgroup, *(each.cgroup for each in pod.running)):
        given = bandwidths.get(folder)
        if given is None or (folder != pod.cgroup and given.quota == NO_LIMIT):
            continue
        target = Target(CPU_QUOTA, folder)
        if cap is None:
            settings.append(DesiredSetting(OWNER, target, given.quota, "it disturbs no other pod", Priority.RELEASE))
        else:
            # Joined with what the pod's own limits come to: the lower one holds.
            capped = max(cap[0] * given.period // PERIOD, LEAST_QUOTA)
            value = capped if given.quota == NO_LIMIT else min(given.quota, capped)
            settings.append(DesiredSetting(OWNER, target, value, cap[1], Priority.POD))
    return tuple(settings)


def _cpusets(pod: NodePod, holds: Iterable[tuple[Case, Hold]], snapshot: Snapshot) -> list[DesiredSetting]:
    """Of a pinned pod: two pins are joined, or the first one holds. They are settings of the NodeSLO, as those of CPU
    suppress are, with which they are joined: a pod that disturbs others gets no CPUs that others of its class do not
    have."""
    pinned: frozenset[int] = frozenset()
    reason = ""
    for case, hold in holds:
        if hold.cpus is not None:
            pinned = (pinned & hold.cpus) or pinned or hold.cpus
            reason = reason or f"it disturbs {case.victim_name} ({case.indicator}): {hold.text}"
    if not pinned:
        return []
    folders = [*(each.cgroup for each in pod.running), *([pod.sandbox] if pod.sandbox else [])]
    if snapshot.best_effort is not None:
        folders += [each for each in snapshot.best_effort.folders.inner if each.startswith(f"{pod.cgroup}/")]
    if snapshot.cpu_manager_policy != STATIC:
        # Else kubelet itself writes the CPUs of pods, again and again.
        folders.append(pod.cgroup)
    return [DesiredSetting(OWNER, Target(CPUSET, folder), pinned, reason) for folder in folders]
