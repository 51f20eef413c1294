"""CPUs that were offline come back to the pods, on version 1 of cgroups.

There the kernel takes a CPU that goes offline out of every cpuset, and gives it back to the root alone (Documentation/
admin-guide/cgroup-v1/cpusets.rst). The kubelet and the runtimes write no CPUs into the folders above containers: these
have what their parents had when they were made. So all pods of the node would do without that CPU until it is booted,
whatever their containers are given. Version 2 keeps what was configured apart from what is in force.

What the folder of all pods lost in any other way than with a CPU that went offline was taken by the administrator. Of a
CPU that was offline already when the agent started, nobody knows whether that folder had it: it gets the CPU if it has
every other one, since then nobody keeps it off any.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from koordinator.api.cpu_list import format_cpu_list
from koordinator.api.qos import KubernetesQoS
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.strategies.snapshot import Decision
from koordinator.node.cgroup_layout import CgroupLayout
from koordinator.node.kernel_files import CPUSET, Target

OWNER: Final = "ReturnedCPUs"
_HELD: Final = 120.0
"""Seconds for which folders are looked after: a write may fail, and a pod may be made below one that has it not yet."""


@dataclass(frozen=True, slots=True)
class HotPlug:
    """What is remembered from round to round, of the folder of all pods."""

    had: frozenset[int] = frozenset()
    """The CPUs that it had."""
    away: frozenset[int] = frozenset()
    """Those that it had and that are offline."""
    returned: Mapping[int, float] = field(default_factory=dict)
    """Those of them that are online again, and since when (monotonic)."""
    seen: frozenset[int] = frozenset()
    """Every CPU that has been online."""


def observe(before: HotPlug, kubepods: frozenset[int], online: frozenset[int], now: float) -> HotPlug:
    """``kubepods`` has to be read before ``online``, of which the kernel takes a CPU first."""
    since = dict.fromkeys(before.away & online, now) | {cpu: at for cpu, at in before.returned.items() if cpu in online}
    new = online - before.seen if before.seen else frozenset()
    if online - new - since.keys() <= kubepods:
        since = dict.fromkeys(new, now) | since
    return HotPlug(
        had=kubepods,
        away=(before.away | before.had - kubepods | before.returned.keys()) - online,
        returned={cpu: at for cpu, at in since.items() if cpu not in kubepods or now - at < _HELD},
        seen=before.seen | online,
    )


def folders(layout: CgroupLayout, pods: Iterable[str]) -> list[str]:
    """Those above containers, of which nobody else writes the CPUs; ``pods`` are folders. CPU suppress looks after the
    folders of BestEffort pods."""
    best_effort = layout.qos(KubernetesQoS.BEST_EFFORT)
    parts = layout.kubepods.split("/")
    above = ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
    others = (pod for pod in pods if not pod.startswith(f"{best_effort}/"))
    return list(dict.fromkeys((*above, layout.qos(KubernetesQoS.BURSTABLE), *others)))


def decide(state: HotPlug, shown: Mapping[str, frozenset[int]]) -> Decision:
    """``shown``: the CPUs of the folders, which get those that have returned in addition."""
    if not state.returned:
        return Decision((), "no CPU has returned")
    returned = frozenset(state.returned)
    reason = f"CPUs that were offline have returned: {format_cpu_list(returned)}"
    settings = tuple(
        DesiredSetting(OWNER, Target(CPUSET, folder), cpus | returned, reason, Priority.RELEASE)
        for folder, cpus in shown.items()
    )
    return Decision(settings, reason)
