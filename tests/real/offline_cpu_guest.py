"""A CPU that goes offline and returns, on a real kernel with version 1 of cgroups and a whole agent.

Run as a program, as root, in a virtual machine; it prints what the cpusets of all cgroups show in each phase. The
agent's kubelet and its API server are in memory, and so is its clock.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from koordinator.node.host import Host
from koordinator.node.kernel_writer import MachineFiles
from tests.koordlet.enforce.test_offline_cpus import FOLDERS, NOTICED, OFF, pods
from tests.koordlet.node_under_test import NodeUnderTest

CPUS = 4
Phases = dict[str, dict[str, str]]
"""The CPUs of each folder, by the moment at which they were read."""
_CGROUPS = Path("/sys/fs/cgroup")
_CONTROLLERS = ("cpuset", "cpu,cpuacct", "memory")
_MOST_SECONDS = 30.0


def _mount() -> None:
    """The hierarchies of version 1 in the place of that of version 2, and the cgroups as the kubelet makes them."""
    subprocess.run(["umount", str(_CGROUPS)], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(_CGROUPS)], check=True)
    for names in _CONTROLLERS:
        (_CGROUPS / names).mkdir()
        subprocess.run(["mount", "-t", "cgroup", "-o", names, "cgroup", str(_CGROUPS / names)], check=True)
    for name in ("cpu", "cpuacct"):
        (_CGROUPS / name).symlink_to("cpu,cpuacct")
    # What is made has the CPUs of its parent, as the runtimes have it.
    (_CGROUPS / "cpuset/cgroup.clone_children").write_text("1")
    for names in _CONTROLLERS:
        for folder in filter(None, FOLDERS):
            (_CGROUPS / names / folder).mkdir()


def _shown() -> dict[str, str]:
    return {folder: (_CGROUPS / "cpuset" / folder / "cpuset.cpus").read_text().strip() for folder in FOLDERS}


def _switch(cpu: int, *, on: bool) -> dict[str, str]:
    """What the kernel makes of the cpusets, once its root has noticed."""
    before = _shown()[""]
    Path(f"/sys/devices/system/cpu/cpu{cpu}/online").write_text(str(int(on)))
    deadline = time.monotonic() + _MOST_SECONDS
    while _shown()[""] == before and time.monotonic() < deadline:
        time.sleep(0.1)
    # The other cpusets come after the root, in the same piece of work.
    time.sleep(1)
    return _shown()


async def _story(node: NodeUnderTest) -> Phases:
    node.show_slo({"resourceUsedThresholdWithBE": OFF})
    async with node.running():
        await node.pass_seconds(5)
        phases = {"before": _shown(), "offline": _switch(CPUS - 1, on=False)}
        await node.pass_seconds(NOTICED)
        phases["returned"] = _switch(CPUS - 1, on=True)
        await node.pass_seconds(NOTICED)
        phases["afterwards"] = _shown()
    return phases


async def _story_of_a_late_agent(node: NodeUnderTest) -> Phases:
    """The CPU is offline already when the agent starts."""
    node.show_slo({"resourceUsedThresholdWithBE": OFF})
    phases = {"offline before": _switch(CPUS - 1, on=False)}
    async with node.running():
        await node.pass_seconds(5)
        phases["returned later"] = _switch(CPUS - 1, on=True)
        await node.pass_seconds(NOTICED)
        phases["in the end"] = _shown()
    return phases


def _play(story: Callable[[NodeUnderTest], Coroutine[Any, Any, Phases]]) -> Phases:
    with tempfile.TemporaryDirectory() as folder:
        node = NodeUnderTest(Path(folder))
        node.machine.host = Host()
        node.kernel_files = MachineFiles()
        node.pod_is_there = False
        node.pods = pods()
        return asyncio.run(story(node))


def main() -> int:
    _mount()
    found = _play(_story) | _play(_story_of_a_late_agent)
    print(json.dumps(found))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
