"""From recorded kernel files to exactly what is told: all metrics of koordlet, the NodeMetric and the topology.

Where a change of what is told is meant, KOORDINATOR_WRITE_GOLDEN=1 writes the expected files anew, for a person to
compare with what they were.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.koordlet.recording import Recording
from tests.koordlet.replayed_node import ReplayedNode, Reported

_RECORDED = Path(__file__).parent / "recorded"
_GATES = ("PSICollector", "NodeMetricPromMetrics", "HugePageReport")
_NGINX = {"name": "nginx", "qos": "LS", "priority": "koord-prod"}


_JOB = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0000_job.slice"
_WEB = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0000_web.slice"
_CGROUP = "/sys/fs/cgroup"
_STALLS = "some avg10={0} avg60=1.00 avg300=0.50 total=123456\nfull avg10=0.25 avg60=0.10 avg300=0.00 total=4567\n"
_MADE = {
    "/sys/bus/node/devices/node0/meminfo": "".join(
        f"Node 0 {name}: {kib} kB\n"
        for name, kib in (
            ("MemTotal", 1016948),
            ("MemFree", 961628),
            ("Active(file)", 2304),
            ("Inactive(file)", 15888),
            ("SReclaimable", 488),
        )
    ),
    "/sys/devices/system/node/node0/cpulist": "0\n",
    f"{_CGROUP}/kubepods.slice/kubepods-besteffort.slice/cpuset.cpus.effective": "0\n",
    f"{_CGROUP}/{_JOB}/cri-containerd-c0job.scope/cpuset.cpus.effective": "0\n",
    f"{_CGROUP}/{_JOB}/memory.numa_stat": "anon N0=8192\nfile N0=0\nunevictable N0=0\n",
    **{
        f"{_CGROUP}/{folder}/{resource}.pressure": _STALLS.format(stall)
        for folder in ("kubepods.slice", _WEB, f"{_WEB}/cri-containerd-c0web.scope")
        for resource, stall in (("cpu", "90.00"), ("memory", "0.00"), ("io", "2.00"))
    },
}
"""What the kernel of the recording was built without: NUMA, cpusets and PSI, as kernels show them that have these."""


def _reported(folder: Path, name: str, made: dict[str, str]) -> Reported:
    return ReplayedNode(folder, Recording.read(_RECORDED / name), _GATES, [_NGINX], made).play()


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reported]:
    """By the name's suffix of the recorded files, which is the cgroup version."""
    return {
        "": _reported(tmp_path_factory.mktemp("v1"), "node.json", {}),
        "_v2": _reported(tmp_path_factory.mktemp("v2"), "node_v2.json", _MADE),
    }


def _check(name: str, text: str) -> None:
    file = _RECORDED / name
    if os.environ.get("KOORDINATOR_WRITE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


def _used(reported: Reported, pod: str) -> int:
    """Milli-CPU."""
    usage = {pod["name"]: pod["podUsage"]["resources"]["cpu"] for pod in reported.node_metric["podsMetric"]}
    return int(usage[pod].removesuffix("m"))


@pytest.mark.parametrize("version", ["", "_v2"])
def test_the_metrics(reported: dict[str, Reported], version: str) -> None:
    _check(f"metrics{version}.txt", reported[version].metrics)


@pytest.mark.parametrize("version", ["", "_v2"])
def test_the_node_metric(reported: dict[str, Reported], version: str) -> None:
    _check(f"node_metric{version}.json", json.dumps(reported[version].node_metric, indent=2) + "\n")


@pytest.mark.parametrize("version", ["", "_v2"])
def test_the_node_resource_topology(reported: dict[str, Reported], version: str) -> None:
    _check(f"node_resource_topology{version}.json", json.dumps(reported[version].topology, indent=2) + "\n")


def test_the_pod_that_burned_cpu_has_used_what_its_quota_let_it(reported: dict[str, Reported]) -> None:
    """The recording is of a pod with a quota of 50 milli-CPU: golden files alone would accept any figure."""
    assert 45 <= _used(reported[""], "p0") <= 55


def test_with_version_2_too(reported: dict[str, Reported]) -> None:
    """Quotas of 100 and 300 milli-CPU; that machine had other things to do, so that it was late now and then."""
    assert 95 <= _used(reported["_v2"], "web") <= 110
    assert 290 <= _used(reported["_v2"], "job") <= 320
