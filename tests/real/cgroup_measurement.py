"""Run as a program, as root: one pod's cgroup with a process that burns CPU and touches memory, and what we read of it.

Prints one JSON document with our readings and the kernel's own files. It runs on this machine's kernel, and inside a
virtual machine with another one (``cgroup2_kernel`` in test_cgroups.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion, detect_version
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.errors import OddRowError
from koordinator.node.features import Works, probe_machine
from koordinator.node.host import Host

_MEBIBYTES = 32
# It ends by itself when it has used a quarter of a second of CPU, whatever else the machine is doing.
_BURNER = f"""
import sys, time
memory = bytearray({_MEBIBYTES} << 20)
memory[::4096] = b"x" * len(memory[::4096])
while time.process_time() < 0.25: pass
print("done", flush=True)
sys.stdin.read()
"""
_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory")


def main() -> None:
    host = Host()
    version = detect_version(host)
    layout = CgroupLayout(host.cgroup, version, CgroupDriver.CGROUPFS)
    pod = layout.pod(f"test-{os.getpid()}", "Burstable")
    folders = _make(layout, pod)
    reader = CgroupReader(layout, os.sysconf("SC_PAGESIZE"))
    try:
        with subprocess.Popen(
            [sys.executable, "-c", _BURNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: _enter(folders),
        ) as burner:
            assert burner.stdout is not None
            burner.stdout.readline()
            sys.stdout.write(json.dumps(_measure(layout, reader, pod, burner.pid, host)) + "\n")
            assert burner.stdin is not None
            burner.stdin.close()
    finally:
        for folder in folders:
            folder.rmdir()


def _measure(layout: CgroupLayout, reader: CgroupReader, pod: str, pid: int, host: Host) -> dict[str, object]:
    stat = reader.memory_stat(pod)
    _, _, *times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    response: dict[str, object] = {
        "version": layout.version.value,
        "pid": pid,
        "processSeconds": (int(times[9]) + int(times[10])) / os.sysconf("SC_CLK_TCK"),
        "cpuUsage": reader.cpu_usage(pod),
        "cpuQuota": reader.cpu_quota(pod),
        "cpuPeriod": reader.cpu_period(pod),
        "cpuShares": reader.cpu_shares(pod),
        "periods": reader.cpu_stat(pod).periods,
        "throttledPeriods": reader.cpu_stat(pod).throttled_periods,
        "memoryUsage": reader.memory_usage(pod),
        "memoryLimit": reader.memory_limit(pod),
        "anonymous": stat.inactive_anon + stat.active_anon,
        "usage": stat.usage,
        "usageWithPageCache": stat.usage_with_page_cache,
        "processes": reader.processes(pod),
        "tasks": reader.tasks(pod),
        "works": [feature.name for feature in probe_machine(host).features if isinstance(feature.state, Works)],
    }
    if Path(f"{layout.folder('memory', pod)}/memory.numa_stat").exists():
        odd: list[OddRowError] = []
        response["numaMemory"] = sum(reader.numa_memory(pod, odd.append).values())
        assert not odd, odd
    return response


def _make(layout: CgroupLayout, pod: str) -> list[Path]:
    """The pod's folders, with a tenth of a CPU."""
    if layout.version is CgroupVersion.V1:
        folders = [Path(layout.folder(controller, pod)) for controller in _CONTROLLERS]
        for folder in folders:
            folder.mkdir(parents=True)
        for name in ("cpuset.mems", "cpuset.cpus"):
            _inherit(Path(layout.root) / "cpuset", Path(layout.folder("cpuset", pod)), name)
        (folders[0] / "cpu.cfs_quota_us").write_text("20000")
        (folders[0] / "cpu.shares").write_text("2048")
        return folders
    folder = Path(layout.folder("", pod))
    parent = Path(layout.root)
    for part in Path(pod).parts:
        (parent / "cgroup.subtree_control").write_text("+cpu +memory")
        parent /= part
        parent.mkdir(exist_ok=True)
    (folder / "cpu.max").write_text("20000 100000")
    (folder / "cpu.weight").write_text("79")
    return [folder]


def _inherit(top: Path, bottom: Path, name: str) -> None:
    value = (top / name).read_text()
    folder = top
    for part in bottom.relative_to(top).parts:
        folder /= part
        (folder / name).write_text(value)


def _enter(folders: list[Path]) -> None:
    for folder in folders:
        (folder / "cgroup.procs").write_text(str(os.getpid()))


if __name__ == "__main__":
    main()
