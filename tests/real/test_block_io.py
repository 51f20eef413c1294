"""Block I/O on the kernel of this machine: what an annotation requests is what a process in the cgroup gets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from koordinator.base.clock import SystemClock
from koordinator.koordlet.enforce.executor.desired_settings import Outcome
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.enforce.strategies.block_io import OWNER, Disks, decide, neutral
from koordinator.koordlet.enforce.strategies.snapshot import PodUsage
from koordinator.node.block_devices import BlockDevices, read_block_devices
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion, detect_version
from koordinator.node.host import Host
from koordinator.node.kernel_file_codec import KernelFileCodec
from koordinator.node.kernel_files import BLOCK_WEIGHT, Target
from koordinator.node.kernel_writer import MachineFiles
from tests.koordlet.enforce.strategies.qos_fixtures import pod_usage, policy, snapshot
from tests.node.machine import none_odd

_BYTES = 2 << 20
_PER_SECOND = 1 << 20
_WRITE = """
import mmap, os, sys
os.setpgrp()
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
block = mmap.mmap(-1, 65536)
for _ in range(int(sys.argv[2]) // 65536):
    os.write(descriptor, block)
"""


@pytest.fixture
def cgroup() -> Iterator[str]:
    """A relative folder of version 1's blkio."""
    if os.geteuid() != 0 or detect_version(Host()) is not CgroupVersion.V1:
        pytest.skip("needs root and cgroup version 1")
    folder = f"koord-block-io-{os.getpid()}"
    path = Path(f"/sys/fs/cgroup/blkio/{folder}")
    path.mkdir()
    yield folder
    path.rmdir()


def _device_of(path: Path, devices: BlockDevices) -> str:
    """The device that a folder lies on, if it is a disk whose number is known."""
    below = max((each for each in devices.mounts if path.is_relative_to(each)), key=len, default="")
    device = devices.mounts.get(below, "")
    if devices.disk_number(device) is None:
        pytest.skip(f"{path} lies on no disk")
    return device


def _seconds_of_writing(cgroup: str, file: Path) -> float:
    started = time.monotonic()
    script = f"echo $$ > /sys/fs/cgroup/blkio/{cgroup}/cgroup.procs && exec {sys.executable} - {file} {_BYTES}"
    subprocess.run(["sh", "-c", script], input=_WRITE, text=True, check=True, timeout=60)
    return time.monotonic() - started


def test_a_limit_of_bytes_holds_and_goes_away(cgroup: str, tmp_path: Path) -> None:
    host = Host()
    layout = CgroupLayout(host.cgroup, CgroupVersion.V1, CgroupDriver.CGROUPFS)
    executor = Executor(MachineFiles(), KernelFileCodec(host, layout, os.sysconf("SC_PAGESIZE")), SystemClock())
    devices = read_block_devices(host, none_odd)
    device = _device_of(tmp_path, devices)
    number = devices.disk_number(device)

    def enforce(annotation: str) -> None:
        made = pod_usage("web", annotations={"koordinator.sh/blkioQOS": annotation})
        pod = PodUsage(replace(made.pod, cgroup=cgroup))
        shown = {cgroup: {file: executor.present_devices(file, cgroup) for file in neutral(cgroup)}}
        given = snapshot(policy=policy(resourceQOSStrategy={}), pods=(pod,))
        decision, _ = decide(given, layout, Disks(devices, host.var_lib_kubelet, shown), frozenset())
        assert decision.settings
        assert decision.problems == ()
        executor.submit(OWNER, decision.settings)
        executor.apply()

    enforce(json.dumps({"blocks": [{"name": device, "type": "device", "ioCfg": {"writeBPS": _PER_SECOND}}]}))
    shown = Path(f"/sys/fs/cgroup/blkio/{cgroup}/blkio.throttle.write_bps_device")
    assert shown.read_text() == f"{number} {_PER_SECOND}\n"
    # A kernel without blk-iocost still limits.
    weight = executor.explain(Target(BLOCK_WEIGHT, cgroup, number or ""))
    assert weight is not None
    assert weight.outcome in (Outcome.UNSUPPORTED, Outcome.THERE_ALREADY)
    # The kernel lets the first tenth of a second through at once.
    assert _seconds_of_writing(cgroup, tmp_path / "limited") > 0.75 * _BYTES / _PER_SECOND
    enforce("")
    assert shown.read_text() == ""
    assert _seconds_of_writing(cgroup, tmp_path / "free") < 0.75 * _BYTES / _PER_SECOND
