"""The kernel refuses a quota below the burst, and takes it when the hooks have been called before.

tests/koordlet/enforce/hooks/test_resized_bursts.py has more of it, on files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordinator.base.clock import ManualClock
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.enforce.hooks.contexts import starting_pod
from koordinator.koordlet.enforce.hooks.resized_pods import ResizedPods
from koordinator.koordlet.enforce.strategies import cpu_burst
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion, detect_version
from koordinator.node.host import Host
from koordinator.node.kernel_file_codec import KernelFileCodec
from koordinator.node.kernel_files import CPU_BURST, Target
from koordinator.node.kernel_writer import MachineFiles

_ROOT = Path("/sys/fs/cgroup/cpu")


@pytest.fixture
def pod() -> Iterator[str]:
    """The relative folder of a pod of 100 ms, and of its one container."""
    if os.geteuid() != 0:
        pytest.skip("making cgroups needs root")
    if detect_version(Host()) is not CgroupVersion.V1:
        pytest.skip("this machine's kernel runs cgroup version 2")
    folder = f"koordinator-resized-{os.getpid()}"
    folders = [_ROOT / folder, _ROOT / folder / "container"]
    for each in folders:
        each.mkdir()
        (each / "cpu.cfs_quota_us").write_text("100000")
    yield folder
    for each in reversed(folders):
        each.rmdir()


def _resize(pod: str) -> None:
    """As the runtime and then the kubelet do it."""
    for folder in (f"{pod}/container", pod):
        (_ROOT / folder / "cpu.cfs_quota_us").write_text("40000")


def test_a_pod_that_may_burst_is_resized_at_once(pod: str) -> None:
    layout = CgroupLayout("/sys/fs/cgroup", CgroupVersion.V1, CgroupDriver.CGROUPFS)
    executor = Executor(MachineFiles(), KernelFileCodec(Host(), layout, os.sysconf("SC_PAGESIZE")), ManualClock())
    folders = (pod, f"{pod}/container")
    executor.submit(
        cpu_burst.OWNER, [DesiredSetting(cpu_burst.OWNER, Target(CPU_BURST, folder), 100_000, "") for folder in folders]
    )
    executor.apply()
    with pytest.raises(OSError, match="Invalid argument"):
        _resize(pod)
    ResizedPods(executor, ManualClock()).notice(starting_pod("shop", "web", "web", {}, {}, pod), "container", 40_000)
    _resize(pod)
    assert [(_ROOT / folder / "cpu.cfs_burst_us").read_text().strip() for folder in folders] == ["40000", "40000"]
