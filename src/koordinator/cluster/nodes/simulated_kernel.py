"""The files that the kernel of a simulated node shows: cgroups (version 2), /proc, PSI and resctrl, below one folder.

The usage model says what pods would use; the kernel counts it, moment by moment, and grants no more CPU than the limits
in its files allow. What koordlet writes there therefore has an effect that koordlet then measures. What no code of ours
reads is not there: no processes, no disks, no network.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from koordinator.api.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.api.qos import KubernetesQoS, QoSClass, qos_class_with_default
from koordinator.cluster.nodes.simulated_files import SimulatedFiles
from koordinator.koordlet.enforce.hooks.pod_resctrl import pod_group
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.cgroup_reader import weight_of_shares
from koordinator.node.errors import FileError
from koordinator.node.host import Host
from koordinator.node.kernel_files import PERIOD, quota_of_milli, shares_of_milli
from koordinator.node.resctrl import read_schemata

_TICKS: Final = 100
"""Of /proc/stat in a second."""
_PAGE_CACHE_SHARE: Final = 4
"""A cgroup has so many bytes of memory for each byte of page cache."""
_THREADS_OF_CORE: Final = 2
_L3_WAYS: Final = 0xFFF
_L3_BYTES: Final = 32 << 20
_BYTES_OF_CORE: Final = 1 << 30
"""Memory bandwidth that a busy core takes, in bytes a second."""
_RESCTRL_GROUPS: Final = ("LSR", "LS", "BE")
_LEAST_LEFT: Final = 0.001
_CROWDED: Final = 0.75
"""The share of busy CPUs from which on a task that wants to run may find none idle."""
_IDLE: Final = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
_NEW_CGROUP: Final = {
    "cgroup.procs": "",
    "cgroup.threads": "",
    "cpu.idle": "0\n",
    "cpu.max": f"max {PERIOD}\n",
    "cpu.max.burst": "0\n",
    "cpu.weight": "100\n",
    "cpuset.cpus": "\n",
    "memory.high": "max\n",
    "memory.low": "0\n",
    "memory.max": "max\n",
    "memory.min": "0\n",
    "memory.oom.group": "0\n",
    "cpu.pressure": _IDLE,
    "memory.pressure": _IDLE,
    "io.pressure": _IDLE,
}
_CONTROLLERS: Final = "cpuset cpu io memory pids\n"
_FLAGS: Final = "fpu sse2 avx2 cat_l3 mba cqm_llc cqm_occup_llc cqm_mbm_total cqm_mbm_local"


@dataclass(frozen=True, slots=True)
class PodDemand:
    """What a running pod would use if nothing held it down: cores, and bytes."""

    pod: NodePod
    cpu: float
    memory: float


@dataclass(slots=True)
class _Cgroup:
    """What the kernel has counted of one cgroup."""

    cpu: float = 0.0
    """Seconds."""
    periods: float = 0.0
    throttled: float = 0.0
    throttled_seconds: float = 0.0
    stalled: float = 0.0
    """Seconds in which something waited for CPU."""


@dataclass(slots=True)
class _Share:
    """What one pod gets until the next moment."""

    demand: PodDemand
    cpu: float
    held_down: float = 0.0
    """By its own limit or that of its class: the share of its demand that it does not get."""
    crowded: float = 0.0
    """By other pods: the share of the time in which one of its tasks waits for a CPU that they keep busy."""

    @property
    def waiting(self) -> float:
        """The share of the time in which one of its tasks waits, for either reason."""
        return 1 - (1 - self.held_down) * (1 - self.crowded)


class SimulatedKernel:
    """The kernel of one node. Call ``advance`` right before its files are read. Times are seconds."""

    def __init__(self, root: Path, cpus: int, memory: int, now: float) -> None:
        self._cpus = cpus
        self._memory = memory
        self._started = self._now = now
        self._busy = 0.0
        self._cgroups: dict[str, _Cgroup] = {}
        self._bandwidth: dict[str, float] = {}
        self._allowed: dict[str, frozenset[int]] = {}
        """The CPUs in force at this moment, by folder."""
        self.host: Final = Host.below(root)
        self.layout: Final = CgroupLayout(self.host.cgroup, CgroupVersion.V2, CgroupDriver.SYSTEMD)
        self._qos: Final = sorted({self.layout.qos(qos) for qos in KubernetesQoS})
        self._make_machine()
        for folder in ("", *self._qos):
            self._make_cgroup(folder)
        self.advance(now, 0.0, 0.0, ())

    def advance(self, now: float, system_cpu: float, system_memory: float, demands: Sequence[PodDemand]) -> None:
        """Let time pass until ``now``, in which the system and these pods ran; all other pods have ended before."""
        seconds, self._now = max(0.0, now - self._now), max(now, self._now)
        self._keep_only(demands)
        self._allowed.clear()
        for demand in demands:
            self._make_pod(demand.pod)
        shares = self._shares(demands)
        self._crowd(shares, system_cpu)
        for share in shares:
            self._count_pod(share, seconds)
        for folder in ("", *self._qos):
            inside = [share for share in shares if not folder or share.demand.pod.cgroup.startswith(f"{folder}/")]
            self._count(folder, seconds, inside, is_root=not folder)
        self._busy += seconds * (system_cpu + sum(share.cpu for share in shares))
        self._write_machine(system_memory + sum(demand.memory for demand in demands), shares)
        self._write_resctrl(seconds, shares)

    # What is granted.

    def _shares(self, demands: Sequence[PodDemand]) -> list[_Share]:
        """No pod gets more than its own quota, nor best-effort pods together more than their class may have."""
        shares = [_Share(demand, min(demand.cpu, self._limit(demand.pod.cgroup))) for demand in demands]
        best_effort = f"{self.layout.qos(KubernetesQoS.BEST_EFFORT)}/"
        inside = [share for share in shares if share.demand.pod.cgroup.startswith(best_effort)]
        wanted = sum(share.cpu for share in inside)
        allowed = self._limit(best_effort.rstrip("/"))
        for share in inside if wanted > allowed else ():
            share.cpu *= allowed / wanted
        for share in shares:
            share.held_down = 1 - share.cpu / share.demand.cpu if share.demand.cpu > 0 else 0.0
        return shares

    def _crowd(self, shares: Sequence[_Share], system_cpu: float) -> None:
        """Pods wait for CPUs when others keep most of those busy that they leave, the more often the more they run.

        They get what they want all the same: waiting makes them slow, not smaller.
        """
        busy = system_cpu + sum(share.cpu for share in shares)
        for share in shares:
            occupied = (busy - share.cpu) / max(self._cpus - share.cpu, _LEAST_LEFT)
            share.crowded = min(1.0, share.cpu) * min(max((occupied - _CROWDED) / (1 - _CROWDED), 0.0), 1.0)

    def _limit(self, folder: str) -> float:
        """Cores that a cgroup may use by its quota and its CPUs."""
        quota, _, period = self._read(folder, "cpu.max").partition(" ")
        cores = float(self._cpus) if quota == "max" else int(quota) / int(period or PERIOD)
        return min(cores, float(len(self._cpus_of(folder))))

    def _cpus_of(self, folder: str) -> frozenset[int]:
        """Those of its own that its parent has; all of its parent's if there is none."""
        allowed = self._allowed.get(folder)
        if allowed is None:
            above = self._cpus_of(folder.rpartition("/")[0]) if folder else frozenset(range(self._cpus))
            own = parse_cpu_list(self._read(folder, "cpuset.cpus"))
            allowed = self._allowed[folder] = (own & above) or above
        return allowed

    # What is counted.

    def _count_pod(self, share: _Share, seconds: float) -> None:
        pod = share.demand.pod
        self._count(pod.cgroup, seconds, [share])
        for container in pod.containers:
            self._count(container.cgroup, seconds, [share], part=1 / len(pod.containers))

    def _count(
        self, folder: str, seconds: float, shares: Sequence[_Share], *, part: float = 1.0, is_root: bool = False
    ) -> None:
        """Count and show what these pods have used, of which ``part`` was in this cgroup."""
        cgroup = self._cgroups[folder]
        held_down = max((share.held_down for share in shares), default=0.0)
        cgroup.cpu += seconds * part * sum(share.cpu for share in shares)
        waiting = max((share.waiting for share in shares), default=0.0)
        cgroup.stalled += seconds * waiting
        if not is_root and not self._read(folder, "cpu.max").startswith("max"):
            periods = seconds * 1_000_000 / PERIOD
            cgroup.periods += periods
            cgroup.throttled += periods if held_down else 0.0
            cgroup.throttled_seconds += seconds * held_down
        memory = round(part * sum(share.demand.memory for share in shares))
        self._write_cgroup(folder, cgroup, memory, waiting)

    def _write_cgroup(self, folder: str, cgroup: _Cgroup, memory: int, waiting: float) -> None:
        cache = memory // _PAGE_CACHE_SHARE
        micros = round(cgroup.cpu * 1e6)
        files = {
            "cpu.stat": f"usage_usec {micros}\nuser_usec {micros}\nsystem_usec 0\nnr_periods {int(cgroup.periods)}\n"
            f"nr_throttled {int(cgroup.throttled)}\nthrottled_usec {round(cgroup.throttled_seconds * 1e6)}\n",
            "memory.stat": f"anon {memory}\nfile {cache}\ninactive_anon 0\nactive_anon {memory}\n"
            f"inactive_file {cache}\nactive_file 0\nunevictable 0\n",
            "memory.numa_stat": f"anon N0={memory}\nfile N0={cache}\nunevictable N0=0\n",
            "memory.current": f"{memory + cache}\n",
            "cpuset.cpus.effective": f"{format_cpu_list(self._cpus_of(folder))}\n",
            "cpu.pressure": _pressure(waiting, cgroup.stalled),
        }
        self._write_files(self.layout.folder("", folder), files)

    def _keep_only(self, demands: Iterable[PodDemand]) -> None:
        """Remove the cgroups of pods and containers that have ended."""
        kept = {"", *self._qos}
        for demand in demands:
            kept.update((demand.pod.cgroup, *(container.cgroup for container in demand.pod.containers)))
        for folder in [folder for folder in self._cgroups if folder not in kept]:
            del self._cgroups[folder]
            # A container's folder may have gone with its pod's.
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self.layout.folder("", folder))

    # What the machine shows.

    def _write_machine(self, used: float, shares: Sequence[_Share]) -> None:
        total, used_kib = self._memory >> 10, min(round(used / 1024), self._memory >> 10)
        cache = min(used_kib // _PAGE_CACHE_SHARE, total - used_kib)
        ticks = round(self._busy * _TICKS)
        idle = max(0, round((self._now - self._started) * _TICKS) * self._cpus - ticks)
        each, rest = divmod(ticks, self._cpus)
        lines = [f"cpu  {ticks} 0 0 {idle} 0 0 0 0 0 0\n"]
        lines += [f"cpu{cpu} {each + (cpu < rest)} 0 0 {idle // self._cpus} 0 0 0 0 0 0\n" for cpu in range(self._cpus)]
        amounts = {"MemTotal": total, "MemFree": total - used_kib - cache}
        files = {"Active(file)": 0, "Inactive(file)": cache, "SReclaimable": 0}
        meminfo = {**amounts, "MemAvailable": total - used_kib, **files}
        waiting = max((share.waiting for share in shares), default=0.0)
        self._write_files(
            self.host.proc,
            {
                "stat": "".join(lines),
                "meminfo": "".join(f"{name}: {kib} kB\n" for name, kib in meminfo.items()),
                "pressure/cpu": _pressure(waiting, self._cgroups[""].stalled),
            },
        )
        numa = "".join(f"Node 0 {name}: {kib} kB\n" for name, kib in {**amounts, **files}.items())
        self._write_files(f"{self.host.sys}/bus/node/devices/node0", {"meminfo": numa})

    def _write_resctrl(self, seconds: float, shares: Sequence[_Share]) -> None:
        """A group's memory bandwidth and cache follow the CPU that it uses, as far as its schemata let them. A pod is
        in its own group where it has one, as its tasks would be."""
        names = {entry.name for entry in os.scandir(f"{self.host.sys_fs}/resctrl") if entry.is_dir()}
        groups = ["", *sorted(names - {"info", "mon_data"})]
        self._bandwidth = {group: self._bandwidth.get(group, 0.0) for group in groups}
        cores = dict.fromkeys(groups, 0.0)
        for share in shares:
            pod = share.demand.pod
            own = pod_group(pod.uid)
            cores[own if own in names else _resctrl_group(pod)] += share.cpu
        for group, busy in cores.items():
            folder = f"{self.host.sys_fs}/resctrl/{group}".rstrip("/")
            cache, bandwidth = self._parts(group)
            self._bandwidth[group] += seconds * min(busy, self._cpus * bandwidth) * _BYTES_OF_CORE
            total = round(self._bandwidth[group])
            monitor = {
                "llc_occupancy": f"{round(_L3_BYTES * min(cache, busy / self._cpus))}\n",
                "mbm_total_bytes": f"{total}\n",
                "mbm_local_bytes": f"{total}\n",
            }
            self._write_files(f"{folder}/mon_data/mon_L3_00", monitor)

    def _parts(self, group: str) -> tuple[float, float]:
        """The shares of the cache and of the bandwidth that a group may use: all, of one that is being made."""
        try:
            schemata = read_schemata(self.host, group)
        except FileError:
            return 1.0, 1.0
        ways = schemata.l3_masks.get(0, _L3_WAYS).bit_count()
        return ways / _L3_WAYS.bit_count(), schemata.bandwidth_percents.get(0, 100) / 100

    # What is there from the start.

    def _make_machine(self) -> None:
        self._write_files(f"{self.host.sys}/devices/system/cpu", {"online": f"{self._all_cpus()}\n"})
        for cpu in range(self._cpus):
            self._make_cpu(cpu)
        self._write_files(f"{self.host.sys}/devices/system/node/node0", {"cpulist": f"{self._all_cpus()}\n"})
        cpuinfo = "".join(
            f"processor\t: {cpu}\nvendor_id\t: GenuineIntel\nmodel name\t: Simulated CPU\nflags\t\t: {_FLAGS}\n\n"
            for cpu in range(self._cpus)
        )
        self._write_files(self.host.proc, {"cpuinfo": cpuinfo, "pressure/memory": _IDLE, "pressure/io": _IDLE})
        info = {"L3/cbm_mask": f"{_L3_WAYS:x}\n", "L3/num_closids": "16\n"}
        self._write_files(f"{self.host.sys_fs}/resctrl/info", info)
        root = f"{self.host.sys_fs}/resctrl"
        self._write_files(root, {"schemata": f"L3:0={_L3_WAYS:x}\nMB:0=100\n", "tasks": ""})
        for group in _RESCTRL_GROUPS:
            SimulatedFiles().make_folder(f"{root}/{group}")

    def _make_cpu(self, cpu: int) -> None:
        """One socket, one NUMA node and one level 3 cache; two threads a core."""
        first = cpu // _THREADS_OF_CORE * _THREADS_OF_CORE
        threads = f"{first}-{min(first + _THREADS_OF_CORE, self._cpus) - 1}\n"
        folder = f"{self.host.sys}/devices/system/cpu/cpu{cpu}"
        whole = f"{self._all_cpus()}\n"
        self._write_files(f"{folder}/topology", {"core_cpus_list": threads, "package_cpus_list": whole})
        core = f"{first // _THREADS_OF_CORE}\n"
        caches = (("1", "Data", core, threads), ("2", "Unified", core, threads), ("3", "Unified", "0\n", whole))
        for index, (level, kind, number, sharing) in enumerate(caches):
            files = {"level": f"{level}\n", "type": f"{kind}\n", "id": number, "shared_cpu_list": sharing}
            self._write_files(f"{folder}/cache/index{index}", files)

    def _make_cgroup(self, folder: str) -> None:
        self._cgroups[folder] = _Cgroup()
        files = _NEW_CGROUP if folder else {"cgroup.controllers": _CONTROLLERS, "cpuset.cpus": "\n"}
        self._write_files(self.layout.folder("", folder), files)

    def _make_pod(self, pod: NodePod) -> None:
        """What kubelet and the runtime make when a pod or one of its containers starts."""
        for folder in (pod.cgroup, *(container.cgroup for container in pod.containers)):
            if folder not in self._cgroups:
                self._make_cgroup(folder)
                self._limit_as_kubelet(pod, folder)

    def _limit_as_kubelet(self, pod: NodePod, folder: str) -> None:
        """Write the requests and limits in native resources of a pod or of one of its containers."""
        names = {container.cgroup: container.name for container in pod.containers}
        grant = pod.grant.pod if folder == pod.cgroup else pod.grant.containers[names[folder]]
        quota = quota_of_milli(grant.cpu_limit or 0)
        self._write_files(
            self.layout.folder("", folder),
            {
                "cpu.weight": f"{weight_of_shares(shares_of_milli(grant.cpu_request))}\n",
                "cpu.max": f"{quota if quota > 0 else 'max'} {PERIOD}\n",
                "memory.max": f"{grant.memory_limit or 'max'}\n",
            },
        )

    def _all_cpus(self) -> str:
        return f"0-{self._cpus - 1}" if self._cpus > 1 else "0"

    def _read(self, folder: str, name: str) -> str:
        return Path(self.layout.folder("", folder), name).read_text().strip()

    def _write_files(self, folder: str, files: Mapping[str, str]) -> None:
        for name, content in files.items():
            path = f"{folder}/{name}"
            try:
                _write(path, content)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                _write(path, content)


def _write(path: str, content: str) -> None:
    # Not emptied first: file systems take that for the replacement of a precious file, and hurry to the disk.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        encoded = content.encode()
        os.write(descriptor, encoded)
        os.ftruncate(descriptor, len(encoded))
    finally:
        os.close(descriptor)


def _resctrl_group(pod: NodePod) -> str:
    qos = qos_class_with_default(pod.pod)
    return {QoSClass.LSE: "LSR", QoSClass.LSR: "LSR", QoSClass.LS: "LS", QoSClass.BE: "BE"}.get(qos, "")


def _pressure(share: float, stalled: float) -> str:
    """The averages over any time are the share of this moment."""
    percent = f"{100 * share:.2f}"
    total = round(stalled * 1e6)
    line = f"avg10={percent} avg60={percent} avg300={percent} total={total}\n"
    return f"some {line}full {line}"
