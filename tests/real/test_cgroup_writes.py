"""The executor on real cgroups: version 1 of this machine's kernel, version 2 of a kernel in a virtual machine."""

from __future__ import annotations

import os
from typing import Any

import pytest

from koordinator.node.cgroup_layout import CgroupVersion, detect_version
from koordinator.node.host import Host
from tests.real.cgroup2_kernel import result_here, result_on_cgroup2

_WRITES = "tests.real.cgroup_writes"
_DONE = ("written", "there already")
_LOSSY = {"parent/child cpu.shares": (1024, 999), "parent memory.min": (4097, 4096)}
"""A weight stands for many numbers of shares, and protection is in whole pages."""


@pytest.fixture(params=[CgroupVersion.V1, CgroupVersion.V2])
def response(request: pytest.FixtureRequest) -> dict[str, Any]:
    if os.geteuid() != 0:
        pytest.skip("making cgroups needs root")
    if request.param is detect_version(Host()):
        found = result_here(_WRITES)
    elif request.param is CgroupVersion.V2:
        found = result_on_cgroup2(_WRITES)
    else:
        pytest.skip("there is no kernel here with cgroup version 1")
    assert found["version"] == request.param.value
    return found


def test_the_kernel_shows_what_was_wished_after_every_step(response: dict[str, Any]) -> None:
    for step in response["steps"]:
        for name, (desired, shown, outcome) in step.items():
            if outcome == "the kernel has no such file":
                assert shown is None, name
                continue
            assert outcome in _DONE, (name, outcome)
            assert shown == desired or (desired, shown) == _LOSSY[name], name


def test_what_a_version_lacks_is_said(response: dict[str, Any]) -> None:
    lacking = {name for step in response["steps"] for name, (_, _, outcome) in step.items() if outcome not in _DONE}
    protection = {f"parent memory.{name}" for name in ("min", "low", "high", "oom.group")}
    assert lacking - {"parent/child cpu.cfs_burst_us"} == (protection if response["version"] == 1 else set())
