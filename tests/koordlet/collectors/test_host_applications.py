"""Programs beside Kubernetes: where they are, and what they use."""

from __future__ import annotations

import pytest

from koordinator.api.host_application import CgroupPath, HostApplicationSpec
from koordinator.koordlet.collectors.host_applications import (
    HostApplication,
    HostApplicationsCollector,
    HostApplicationsUsage,
    host_applications,
)
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from tests.koordlet.collectors.scans import SECOND, scan, usage

NGINX = HostApplicationSpec(name="nginx", priority="koord-prod", qos="LS")
LAYOUT = CgroupLayout("/cg", CgroupVersion.V2, CgroupDriver.SYSTEMD)


def collected(*rounds: tuple[float, int, int]) -> HostApplicationsUsage:
    """What the last of several rounds gives, each at a second with nanoseconds of CPU and bytes."""
    collector = HostApplicationsCollector(lifetime=20)
    found = HostApplicationsUsage()
    for second, cpu, memory in rounds:
        at = scan(second, {"a/nginx": usage(cpu, memory, cache=7)})
        at.memory_usage = {"a/nginx": memory + 1000}
        found = collector.collect(at, [HostApplication(NGINX, "a/nginx")])
    return found


def test_the_first_round_has_no_usage() -> None:
    assert collected((1, 5 * SECOND, 100)).samples() == {}


def test_cpu_memory_and_what_the_kernel_charges() -> None:
    found = collected((1, 0, 100), (3, SECOND, 120))
    assert {series.kind.name: value for series, value in found.samples().items()} == {
        "host_application_cpu_usage": 0.5,
        "host_application_memory_usage": 120,
        "host_application_memory_usage_with_page_cache": 1120,
    }
    assert (found.cpu, found.memory) == (0.5, 120)


def test_one_that_was_restarted_begins_anew() -> None:
    assert collected((1, 5 * SECOND, 100), (2, SECOND, 100)).applications == ()


def test_one_whose_cgroup_is_gone_is_left_out() -> None:
    collector = HostApplicationsCollector(lifetime=20)
    assert collector.collect(scan(1), [HostApplication(NGINX, "a/nginx")]).applications == ()


@pytest.mark.parametrize(
    ("spec", "folder"),
    [
        (HostApplicationSpec(name="a", qos="LSE"), "host-latency-sensitive/a"),
        (HostApplicationSpec(name="a", qos="LSR"), "host-latency-sensitive/a"),
        (HostApplicationSpec(name="a", qos="BE"), "host-best-effort/a"),
        (HostApplicationSpec(name="a", qos="SYSTEM"), "a"),
        (HostApplicationSpec(name="a"), "a"),
        (HostApplicationSpec(cgroup_path=CgroupPath("CgroupRoot", "p/", "/q")), "p/q"),
        (HostApplicationSpec(cgroup_path=CgroupPath("Kubepods", "p", "q")), "kubepods.slice/p/q"),
        (
            HostApplicationSpec(cgroup_path=CgroupPath("KubepodsBurstable", "", "q")),
            "kubepods.slice/kubepods-burstable.slice/q",
        ),
        (
            HostApplicationSpec(cgroup_path=CgroupPath("KubepodsBesteffort", "p")),
            "kubepods.slice/kubepods-besteffort.slice/p",
        ),
        (HostApplicationSpec(cgroup_path=CgroupPath("", "../../etc", "x")), "etc/x"),
    ],
)
def test_folders(spec: HostApplicationSpec, folder: str) -> None:
    assert LAYOUT.host_application(spec) == folder


def test_of_several_with_one_name_the_first_counts() -> None:
    second = HostApplicationSpec(name="nginx", qos="BE")
    assert [found.cgroup for found in host_applications([NGINX, second], LAYOUT)] == ["host-latency-sensitive/nginx"]
