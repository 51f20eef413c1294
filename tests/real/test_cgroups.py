"""Readings of real cgroups: version 1 of this machine's kernel, version 2 of a kernel in a virtual machine."""

from __future__ import annotations

import os
from typing import Any

import pytest

from koordinator.node.cgroup_layout import CgroupVersion, detect_version
from koordinator.node.host import Host
from tests.real.cgroup2_kernel import result_here, result_on_cgroup2

_MEASUREMENT = "tests.real.cgroup_measurement"


@pytest.fixture(scope="module")
def version_1() -> dict[str, Any]:
    if os.geteuid() != 0:
        pytest.skip("making cgroups needs root")
    if detect_version(Host()) is not CgroupVersion.V1:
        pytest.skip("this machine's kernel runs cgroup version 2")
    return result_here(_MEASUREMENT)


@pytest.fixture(scope="module")
def version_2() -> dict[str, Any]:
    return result_on_cgroup2(_MEASUREMENT)


@pytest.fixture(params=["version_1", "version_2"])
def readings(request: pytest.FixtureRequest) -> dict[str, Any]:
    response: dict[str, Any] = request.getfixturevalue(request.param)
    return response


def test_cpu_time_is_that_of_the_process(readings: dict[str, Any]) -> None:
    """But for what the process took before it entered the cgroup, and what a tick of 10 ms rounds.

    User-mode Linux counts a whole tick for a process also where the machine below ran something else in it.
    """
    tolerance = {1: 0.1, 2: 0.4}[readings["version"]]
    assert readings["cpuUsage"] / 1e9 == pytest.approx(readings["processSeconds"], rel=tolerance, abs=0.03)


def test_the_quota_and_its_periods(readings: dict[str, Any]) -> None:
    assert (readings["cpuQuota"], readings["cpuPeriod"]) == (20000, 100000)
    assert 0 < readings["throttledPeriods"] <= readings["periods"]


def test_the_shares(readings: dict[str, Any]) -> None:
    expected = {1: 2048, 2: 2046}  # one unit of version 2's weight is 26 shares
    assert readings["cpuShares"] == expected[readings["version"]]


def test_memory_that_was_touched_is_used(readings: dict[str, Any]) -> None:
    touched = 32 << 20
    assert touched <= readings["anonymous"] <= readings["usage"] <= readings["usageWithPageCache"]
    assert readings["usage"] < touched * 2
    assert readings["memoryUsage"] >= readings["anonymous"]
    assert readings["memoryLimit"] == -1


def test_the_processes(readings: dict[str, Any]) -> None:
    assert readings["processes"] == [readings["pid"]]
    assert readings["pid"] in readings["tasks"]


def test_features_that_each_version_has(version_1: dict[str, Any], version_2: dict[str, Any]) -> None:
    assert "block I/O limits" in version_1["works"]
    assert "memory protection (min, low, high)" not in version_1["works"]
    assert "memory protection (min, low, high)" in version_2["works"]
    assert "out-of-memory kills by group" in version_2["works"]
    assert "block I/O limits" in version_2["works"]
