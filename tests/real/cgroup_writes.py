"""Writes through the executor into cgroups of its own on the kernel that it runs on, and prints what the kernel shows.

Run on its own, as root: on this machine (version 1), or in a virtual machine with version 2.
"""

from __future__ import annotations

import json
import os
import sys

from koordinator.base.clock import SystemClock
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.node.block_devices import read_block_devices
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion, detect_version
from koordinator.node.errors import OddRowError
from koordinator.node.host import Host
from koordinator.node.kernel_file_codec import KernelFileCodec
from koordinator.node.kernel_files import (
    BLOCK_READ_BPS,
    BLOCK_READ_IOPS,
    BLOCK_WRITE_BPS,
    BLOCK_WRITE_IOPS,
    CPU_BURST,
    CPU_QUOTA,
    CPU_SHARES,
    MEMORY_HIGH,
    MEMORY_LIMIT,
    MEMORY_LOW,
    MEMORY_MIN,
    MEMORY_OOM_GROUP,
    Target,
    Value,
)
from koordinator.node.kernel_writer import MachineFiles

_PARENT = f"writes-{os.getpid()}"
_CHILD = f"{_PARENT}/child"
_STEPS: list[dict[Target, Value]] = [
    {Target(CPU_QUOTA, _PARENT): 50_000, Target(CPU_QUOTA, _CHILD): 20_000, Target(CPU_SHARES, _CHILD): 1024},
    {Target(CPU_QUOTA, _PARENT): 150_000, Target(CPU_QUOTA, _CHILD): 120_000},
    {Target(CPU_QUOTA, _PARENT): 10_000, Target(CPU_QUOTA, _CHILD): 5_000},
    {Target(CPU_QUOTA, _PARENT): -1, Target(CPU_QUOTA, _CHILD): 30_000, Target(CPU_BURST, _CHILD): 10_000},
    {Target(MEMORY_LIMIT, _PARENT): 256 << 20, Target(MEMORY_LIMIT, _CHILD): -1},
    {
        Target(MEMORY_MIN, _PARENT): 4097,
        Target(MEMORY_LOW, _PARENT): 8192,
        Target(MEMORY_HIGH, _PARENT): (1 << 63) - 1,
        Target(MEMORY_OOM_GROUP, _PARENT): 1,
    },
]


_LIMITS = (BLOCK_READ_IOPS, BLOCK_READ_BPS, BLOCK_WRITE_IOPS, BLOCK_WRITE_BPS)


def _block_steps(host: Host) -> list[dict[Target, Value]]:
    """Limits of the first disk, one of them changed, and none; no steps on a machine without disks."""
    odd: list[OddRowError] = []
    for number in sorted(read_block_devices(host, odd.append).disks.values())[:1]:
        targets = [Target(file, _CHILD, number) for file in _LIMITS]
        return [
            dict.fromkeys(targets, 1 << 20),
            {targets[0]: 2048, targets[1]: 0, targets[2]: (1 << 32) - 2, targets[3]: 1 << 40},
            dict.fromkeys(targets, 0),
        ]
    return []


def main() -> int:
    host, version = Host(), detect_version(Host())
    layout = CgroupLayout(host.cgroup, version, CgroupDriver.CGROUPFS)
    controllers = ("cpu", "memory", "blkio") if version is CgroupVersion.V1 else ("",)
    folders = [layout.folder(controller, folder) for controller in controllers for folder in (_PARENT, _CHILD)]
    for folder in folders:
        os.mkdir(folder)
        if version is CgroupVersion.V2 and folder.endswith(_PARENT):
            MachineFiles().write(f"{folder}/cgroup.subtree_control", "+cpu +memory +io")
    executor = Executor(MachineFiles(), KernelFileCodec(host, layout, os.sysconf("SC_PAGESIZE")), SystemClock())
    steps = []
    try:
        for number, step in enumerate([*_STEPS, *_block_steps(host)]):
            executor.submit(
                "test", [DesiredSetting("test", target, value, f"step {number}") for target, value in step.items()]
            )
            executor.apply()
            steps.append(
                {
                    str(target).partition(" ")[0].replace(_PARENT, "parent") + " " + target.file.key: [
                        value,
                        executor.present(target),
                        _outcome(executor, target),
                    ]
                    for target, value in step.items()
                }
            )
    finally:
        for folder in reversed(folders):
            os.rmdir(folder)
    print(json.dumps({"version": version.value, "steps": steps}))  # noqa: T201
    return 0


def _outcome(executor: Executor, target: Target) -> str:
    explanation = executor.explain(target)
    return explanation.outcome.value if explanation is not None else ""


if __name__ == "__main__":
    sys.exit(main())
