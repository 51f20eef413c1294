"""CPU suppress: best-effort pods get what latency-sensitive pods leave of the node's CPU, up to a threshold.

    budget = capacity * threshold - pods that are not best-effort - programs beside Kubernetes - system

Two policies. ``cfsQuota`` writes the budget as the quota of the BestEffort folder; it falls at once and rises by a
tenth of the node a round. ``cpuset`` leaves the BestEffort folders so many CPUs, at least two; it shrinks at once and
grows by a tenth of the node's CPUs a round (pkg/koordlet/qosmanager/plugins/cpusuppress).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from koordinator.api.node import Node
from koordinator.api.qos import QoSClass
from koordinator.api.resource_threshold import CFS_QUOTA_SUPPRESS_POLICY, ResourceThresholdStrategy
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.strategies.snapshot import (
    STATIC,
    BestEffortCgroups,
    BestEffortFolders,
    Decision,
    Problem,
    Snapshot,
    capacity_milli,
    cpu_list_or_none,
    is_suppressed_host_application,
    node_reservation,
)
from koordinator.node.cgroup_reader import NO_LIMIT
from koordinator.node.cpu_topology import LogicalCPU
from koordinator.node.kernel_files import CPU_QUOTA, CPUSET, PERIOD, Target

OWNER: Final = "BECPUSuppress"
LEAST_QUOTA: Final = 2000
"""Microseconds in 100 ms: what best-effort pods keep however busy the node is."""
LEAST_CPUS: Final = 2
_SMALLEST_CHANGE: Final = 0.01
"""Of the node: a smaller change of the quota is not worth a write."""
_GROWTH: Final = 0.1
"""Of the node: the most that is given back in one round."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What best-effort pods may use, and what that is made of, in milli-CPU."""

    capacity: int
    threshold_percent: int
    least_percent: int | None
    """None for no lower bound."""
    online: int
    """Pods that are not best-effort."""
    programs: int
    """Beside Kubernetes, but for those that are held down together with best-effort pods."""
    system: int

    @property
    def milli(self) -> int:
        """It may be negative."""
        left = self.capacity * self.threshold_percent // 100 - self.online - self.programs - self.system
        return left if self._least is None else max(left, self._least)

    @property
    def _least(self) -> int | None:
        return None if self.least_percent is None else self.capacity * self.least_percent // 100

    def __str__(self) -> str:
        """For a person: why it is so much."""
        if self.least_percent and self.milli == self._least:
            return f"{self.least_percent} % of {_cores(self.capacity)} are what they have at least"
        terms = [f"{_cores(self.online)} of other pods"]
        terms += [f"{_cores(self.programs)} of host applications"] if self.programs else []
        return f"{self.threshold_percent} % of {_cores(self.capacity)}, less {', '.join(terms)} and " + (
            f"{_cores(self.system)} of the system"
        )


def _cores(milli: int) -> str:
    amount = f"{milli / 1000:.2f}".rstrip("0").rstrip(".")
    return f"{amount} CPU{'' if amount == '1' else 's'}"


def decide(snapshot: Snapshot, *, is_enabled: bool = True, is_cpu_managed: bool = False) -> Decision:
    """The quota and the CPUs of best-effort pods; the switches are the gates BECPUSuppress and BECPUManager.

    Where the feature is off, by gate or by policy, everything gets back what kubelet gives it.
    """
    cgroups = snapshot.best_effort
    if cgroups is None:
        return Decision((), "kubelet has made no folder for BestEffort pods yet")
    if not is_enabled:
        return _released(snapshot, cgroups, "the gate BECPUSuppress is off", frozenset())
    if snapshot.policy is None or snapshot.policy.resource_used_threshold_with_be is None:
        return Decision(None, "the node has no NodeSLO")
    strategy = snapshot.policy.resource_used_threshold_with_be
    if is_cpu_managed:
        return _released(snapshot, cgroups, "the gate BECPUManager is on", _allocated_containers(snapshot))
    if not strategy.enable:
        return _released(snapshot, cgroups, "the NodeSLO does not enable it", frozenset())
    budget = cpu_budget(snapshot, strategy)
    if isinstance(budget, str):
        return Decision(None, budget)
    assert snapshot.node is not None
    if strategy.cpu_suppress_policy == CFS_QUOTA_SUPPRESS_POLICY:
        return _by_quota(snapshot, snapshot.node, cgroups, budget.milli, str(budget))
    return _by_cpuset(snapshot, cgroups, budget.milli, str(budget))


def cpu_budget(snapshot: Snapshot, strategy: ResourceThresholdStrategy) -> Budget | str:
    """What is left for best-effort pods. A text says what is missing to compute it."""
    node = snapshot.node
    if node is None or not snapshot.pods:
        return "the Node or its pods are not known yet"
    if snapshot.node_cpu is None:
        return "the node's use of CPU is not known"
    if strategy.cpu_suppress_threshold_percent is None:
        return "the NodeSLO has no cpuSuppressThresholdPercent"
    capacity = capacity_milli(node)
    others = online_cores(snapshot)
    programs, other_programs = _host_applications(snapshot)
    used = sum([usage.cpu or 0.0 for usage in snapshot.pods]) + programs
    return Budget(
        capacity,
        strategy.cpu_suppress_threshold_percent,
        strategy.cpu_suppress_min_percent,
        online=math.trunc(others * 1000),
        programs=math.trunc(other_programs * 1000),
        system=max(math.trunc((snapshot.node_cpu - used) * 1000), 0, _reserved_milli(node)),
    )


def online_cores(snapshot: Snapshot) -> float:
    """What the pods that are not held down use."""
    return sum([usage.cpu or 0.0 for usage in snapshot.pods if not usage.pod.is_best_effort])


def _host_applications(snapshot: Snapshot) -> tuple[float, float]:
    """Cores of all programs beside Kubernetes that were measured, and of those that are not held down."""
    applications = snapshot.policy.host_applications if snapshot.policy else []
    known = [
        (each, snapshot.host_applications[each.name])
        for each in applications
        if each.name in snapshot.host_applications
    ]
    return (
        sum(cores for _, cores in known),
        sum(cores for application, cores in known if not is_suppressed_host_application(application)),
    )


def _reserved_milli(node: Node) -> int:
    allocatable = node.status.allocatable.get("cpu")
    kept = capacity_milli(node) - allocatable.nanos // 10**6 if allocatable is not None else 0
    reservation = node_reservation(node)
    cpus = len(cpu_list_or_none(reservation.reserved_cpus)) * 1000
    amount = reservation.resources.get("cpu")
    return max(kept, 0, cpus or (amount.nanos // 10**6 if amount is not None else 0))


def _by_quota(snapshot: Snapshot, node: Node, cgroups: BestEffortCgroups, budget: int, reason: str) -> Decision:
    quota = next_quota(
        budget, cgroups.quota if cgroups.quota is not None else NO_LIMIT, -(-capacity_milli(node) // 1000)
    )
    folders = cgroups.folders
    settings = [DesiredSetting(OWNER, Target(CPU_QUOTA, folders.root), quota, reason)]
    settings += folders.derived(_lifted_quotas)
    settings += _cpuset_release(snapshot, folders, "the policy is cfsQuota", frozenset())
    return Decision(tuple(settings), reason, {"online_cores": online_cores(snapshot), "quota": quota})


def _lifted_quotas(folders: BestEffortFolders) -> tuple[DesiredSetting, ...]:
    """Below the root no cgroup has a limit from the kubelet: a pod without CPU limits is what makes it BestEffort."""
    reason = f"the quota of {folders.root} is what limits best-effort pods"
    below = (*folders.pods, *folders.containers)
    return tuple([DesiredSetting(OWNER, Target(CPU_QUOTA, folder), NO_LIMIT, reason) for folder in below])


def next_quota(budget: int, current: int, cores: int) -> int:
    """The quota of the BestEffort folder in microseconds, from the present one (-1 for none) on a node of ``cores``."""
    wanted = max(budget * PERIOD // 1000, LEAST_QUOTA)
    whole = cores * PERIOD
    if current == NO_LIMIT:
        return wanted
    if abs(wanted - current) < whole * _SMALLEST_CHANGE and wanted != LEAST_QUOTA:
        return current
    return min(wanted, current + math.trunc(whole * _GROWTH))


def _by_cpuset(snapshot: Snapshot, cgroups: BestEffortCgroups, budget: int, reason: str) -> Decision:
    if snapshot.topology is None:
        return Decision(None, "the CPUs of the node are not known")
    folders = cgroups.folders
    settings = _quota_release(folders, "the policy is cpuset")
    if cgroups.cpuset is None:
        # A kernel without cpuset must not keep the quota of another policy for ever.
        problem = Problem(
            "resourceUsedThresholdWithBE.cpuSuppressPolicy: by cpuset, best-effort pods are not suppressed, since "
            f"{folders.root} shows no CPUs: switch the cgroup controller cpuset on there, or use the policy cfsQuota"
        )
        return Decision(tuple(settings), problem.text, problems=(problem,))
    shared, dedicated = _pools(snapshot)
    count = next_cpu_count(budget, len(cgroups.cpuset), len(snapshot.cpus), len(shared) + len(dedicated))
    from_dedicated = count * len(dedicated) // (len(shared) + len(dedicated)) if count else 0
    chosen = choose_cpus(from_dedicated, dedicated) | choose_cpus(count - from_dedicated, shared)
    if not chosen:
        return Decision(tuple(settings), "every CPU is kept for other pods")
    recovered = _recovery_set(snapshot)
    # Under its static policy kubelet itself writes the CPUs of BestEffort and of pods, again and again.
    folders_above = recovered if snapshot.cpu_manager_policy == STATIC else chosen
    given = folders.each(folders_above, chosen)
    settings += [DesiredSetting(OWNER, Target(CPUSET, folder), cpus, reason) for folder, cpus in given.items()]
    return Decision(tuple(settings), reason, {"online_cores": online_cores(snapshot), "cpus": len(chosen)})


def next_cpu_count(budget: int, current: int, cpus: int, eligible: int) -> int:
    """How many CPUs best-effort pods get, of ``eligible`` ones on a node of ``cpus``, from ``current`` ones."""
    wanted = max(-(-budget // 1000), LEAST_CPUS)
    return min(wanted, current + math.ceil(cpus * _GROWTH) if wanted > current else wanted, eligible)


def _pools(snapshot: Snapshot) -> tuple[list[LogicalCPU], list[LogicalCPU]]:
    """CPUs that are shared, and those of LSR pods, which let best-effort pods on; CPUs of LSE pods, and those that
    kubelet has given to pods, are in neither."""
    assert snapshot.topology is not None
    owner = {cpu: usage.pod.qos for usage in snapshot.pods for cpu in usage.pod.allocation.cpus}
    allowed = snapshot.allowed_cpus - snapshot.kubelet_cpus
    eligible = [cpu for cpu in snapshot.topology.cpus if cpu.cpu in allowed]
    dedicated = [cpu for cpu in eligible if owner.get(cpu.cpu) is QoSClass.LSR]
    return [cpu for cpu in eligible if owner.get(cpu.cpu) not in (QoSClass.LSR, QoSClass.LSE)], dedicated


def choose_cpus(count: int, cpus: Iterable[LogicalCPU]) -> frozenset[int]:
    """``count`` of the CPUs: whole cores first, spread over the NUMA nodes; all of them if there are not that many.

    Nodes are visited in turn, those with the most CPUs first: a pair of siblings at each visit while two are wanted
    and some node has a pair, then one at each visit.
    """
    buckets = _buckets(cpus)
    chosen: set[int] = set()
    count = min(count, sum(map(len, buckets)))
    turn = 0
    while count - len(chosen) >= 2:
        pairs_before = len(chosen)
        for visited in range(len(buckets)):
            if count - len(chosen) < 2:
                turn = visited
                break
            chosen.update(_first_pair(buckets[visited], chosen))
        if len(chosen) == pairs_before:
            break
    while len(chosen) < count:
        free = [cpu.cpu for cpu in buckets[turn % len(buckets)] if cpu.cpu not in chosen]
        chosen.update(free[:1])
        turn += 1
    return frozenset(chosen)


def _buckets(cpus: Iterable[LogicalCPU]) -> list[list[LogicalCPU]]:
    buckets: dict[tuple[int, int], list[LogicalCPU]] = {}
    for cpu in sorted(cpus, key=lambda cpu: (cpu.core, cpu.cpu)):
        buckets.setdefault((cpu.numa_node, cpu.socket), []).append(cpu)
    return sorted(buckets.values(), key=lambda bucket: (-len(bucket), min(cpu.cpu for cpu in bucket)))


def _first_pair(bucket: list[LogicalCPU], chosen: Collection[int]) -> tuple[int, ...]:
    free = [cpu for cpu in bucket if cpu.cpu not in chosen]
    for one, other in pairwise(free):
        if one.core == other.core:
            return one.cpu, other.cpu
    return ()


def _recovery_set(snapshot: Snapshot) -> frozenset[int]:
    """What BestEffort pods have without suppression: everything but what others have to themselves."""
    exclusive = {cpu for usage in snapshot.pods if usage.pod.qos is QoSClass.LSE for cpu in usage.pod.allocation.cpus}
    return snapshot.allowed_cpus - exclusive


def _allocated_containers(snapshot: Snapshot) -> frozenset[str]:
    """Folders of containers whose CPUs are set by their pods' allocation."""
    return frozenset(
        container.cgroup for usage in snapshot.pods if usage.pod.allocation.cpus for container in usage.pod.running
    )


def _released(snapshot: Snapshot, cgroups: BestEffortCgroups, reason: str, kept: frozenset[str]) -> Decision:
    settings = (*_quota_release(cgroups.folders, reason), *_cpuset_release(snapshot, cgroups.folders, reason, kept))
    return Decision(settings, reason)


def _quota_release(folders: BestEffortFolders, reason: str) -> list[DesiredSetting]:
    # The kubelet gives this folder no quota, so that one which is there was left by another agent.
    return [DesiredSetting(OWNER, Target(CPU_QUOTA, folders.root), NO_LIMIT, reason, Priority.BASE)]


def _cpuset_release(
    snapshot: Snapshot, folders: BestEffortFolders, reason: str, kept: frozenset[str]
) -> tuple[DesiredSetting, ...]:
    return folders.derived(_released_cpusets, _recovery_set(snapshot), snapshot.kubelet_cpus, reason, kept)


def _released_cpusets(
    folders: BestEffortFolders, cpus: frozenset[int], kubelet_cpus: frozenset[int], reason: str, kept: frozenset[str]
) -> tuple[DesiredSetting, ...]:
    # Folders above containers have to have every CPU that kubelet may give to a container.
    return tuple(
        DesiredSetting(OWNER, Target(CPUSET, folder), given, reason, Priority.RELEASE)
        for folder, given in folders.each(cpus, cpus - kubelet_cpus).items()
        if given and folder not in kept
    )
