"""A node's koordlet is the Go original's, then ours, the original's again, ours again; then there is none any more."""

from __future__ import annotations

import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from tests.free_ports import free_ports
from tests.real.node_pods import NodePods, offer_batch, pod_document
from tests.real.programs import RealPrograms
from tests.real.real_node import EnforcedNode, real_node
from tests.real.upgrade.node_files import differences, settings
from tests.real.upgrade.releases import Release, original, ours

_NODE: Final = "upgraded-node"
_NAMESPACE: Final = "upgraded"
_FEATURES: Final = "BECPUEvict=true,BEMemoryEvict=true,CgroupReconcile=true,Accelerators=true"
"""Those of the original's chart."""
_STAGES: Final = ("original", "ours", "original again", "ours again")
_QUIET: Final = 6.0
"""Seconds in which nothing changes: several rounds of all that writes."""
_LEAST: Final = 15.0
"""Seconds, of which the original takes some until it writes for the first time."""
_MOST: Final = 90.0
_SLO: Final = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressPolicy": "cfsQuota",
        # The least is the most, so that load has no effect.
        "cpuSuppressThresholdPercent": 60,
        "cpuSuppressMinPercent": 60,
    },
    "cpuBurstStrategy": {"policy": "cpuBurstOnly", "cpuBurstPercent": 50},
}


@dataclass
class Stages:
    """What was seen when all was quiet, by stage."""

    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    """What the files of cgroups said."""
    containers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Pod -> its UID, and the containers with their numbers of restarts."""
    hooks_served: dict[str, bool] = field(default_factory=dict)
    """Whether container runtimes reached koordlet."""

    def look(self, stage: str, node: EnforcedNode) -> None:
        self.settings[stage] = settings()
        self.containers[stage] = {
            pod["metadata"]["name"]: (
                pod["metadata"]["uid"],
                [(each["containerID"], each["restartCount"]) for each in pod["status"]["containerStatuses"]],
            )
            for pod in node.get("pods", namespace=_NAMESPACE)["items"]
        }


def _run(node: EnforcedNode, release: Release, folder: Path, stage: str, stages: Stages) -> None:
    """One koordlet until all is quiet; it ends as a DaemonSet's pod does."""
    log = folder / f"{stage}.log"
    command = [*release.command("koordlet"), *_arguments(node, folder)]
    with log.open("wb") as output:
        variables = release.variables | node.koordlet_environment
        process = subprocess.Popen(command, stdout=output, stderr=output, env=variables)
    try:
        _wait_until_quiet(process, log)
        stages.hooks_served[stage] = _answers(folder / "k.sock")
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    finally:
        process.kill()
        process.wait()
    stages.look(stage, node)


def _wait_until_quiet(process: subprocess.Popen[bytes], log: Path) -> None:
    began = quiet = time.monotonic()
    before = dict[str, str]()
    while time.monotonic() < max(quiet + _QUIET, began + _LEAST):
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < began + _MOST, f"still writes: {log.read_text()[-3000:]}"
        if (now := settings()) != before:
            before, quiet = now, time.monotonic()
        time.sleep(0.2)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


def _arguments(node: EnforcedNode, folder: Path) -> list[str]:
    """What both understand; all files are kept where the other one finds them."""
    address, profiles = (f"127.0.0.1:{port}" for port in free_ports(2))
    return [
        *(f"--kubeconfig={node.kubeconfig}", f"--addr={address}", f"--pprof-addr={profiles}", "--logtostderr=true"),
        *(f"--feature-gates={_FEATURES}", f"--audit-log-dir={folder}/audit", f"--tsdb-path={folder}/samples"),
        *(f"--runtime-hooks-addr={folder}/k.sock", f"--runtime-hooks-config-path={folder}/hooks"),
        f"--prediction-checkpoint-filepath={folder}/forecasts",
        *("--runtime-hooks-reconcile-interval=1s", "--kubelet-sync-interval=1s", "--disable-query-kubelet-config"),
        "--enable-nri-runtime-hook=false",
    ]


@pytest.fixture(scope="module")
def stages(real_cluster: Path, real_programs: RealPrograms) -> Iterator[Stages]:
    theirs, own = original(real_programs), ours()
    # The path of a socket may not be long.
    with tempfile.TemporaryDirectory(prefix="upgrade-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for each in ("audit", "samples", "hooks", "forecasts"):
            (folder / each).mkdir()
        with real_node(real_cluster, folder / "node", _NODE, _NAMESPACE) as node:
            _prepare(node)
            found = Stages()
            found.look("kubelet", node)
            for stage, release in dict(zip(_STAGES, (theirs, own, theirs, own), strict=True)).items():
                _run(node, release, folder, stage, found)
            command = [*own.command("koordlet"), *_arguments(node, folder), "--cleanup"]
            variables = own.variables | node.koordlet_environment
            done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=90, check=False)
            assert done.returncode == 0, done.stderr
            found.look("none", node)
            yield found


def _prepare(node: EnforcedNode) -> None:
    header = {"apiVersion": "slo.koordinator.sh/v1alpha1"}
    node.apply({**header, "kind": "NodeSLO", "metadata": {"name": _NODE}, "spec": _SLO})
    policy = {"reportIntervalSeconds": 10, "aggregateDurationSeconds": 10}
    metric = {**header, "kind": "NodeMetric", "metadata": {"name": _NODE}}
    node.apply({**metric, "spec": {"metricCollectPolicy": policy}})
    offer_batch(node, "2000")
    pods = NodePods(_NODE, _NAMESPACE)
    limited = {"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m"}}}
    for document in (
        pods.batch("batch"),
        pods.pinned("pinned"),
        pod_document(_NODE, _NAMESPACE, "online", limited, {"koordinator.sh/qosClass": "LS"}),
    ):
        node.run_pod(document)


def test_there_is_something_to_carry_over(stages: Stages) -> None:
    """Files of each kind differ from what the kubelet has made, or the others would compare nothing."""
    changed = {name.rpartition("/")[2] for name in differences(stages.settings["kubelet"], stages.settings[_STAGES[0]])}
    assert changed >= {"cpu.cfs_quota_us", "cpu.shares", "cpuset.cpus", "memory.limit_in_bytes"}


@pytest.mark.parametrize(("before", "after"), list(pairwise(_STAGES)))
def test_no_setting_changes_with_the_koordlet(stages: Stages, before: str, after: str) -> None:
    assert differences(stages.settings[before], stages.settings[after]) == {}


def test_without_a_koordlet_all_is_as_kubelet_made_it(stages: Stages) -> None:
    assert differences(stages.settings["kubelet"], stages.settings["none"]) == {}


def test_no_container_is_restarted(stages: Stages) -> None:
    assert len(stages.containers) == len(_STAGES) + 2
    assert [stage for stage, found in stages.containers.items() if found != stages.containers["kubelet"]] == []


def test_runtimes_reach_each_koordlet_at_the_same_socket(stages: Stages) -> None:
    assert stages.hooks_served == dict.fromkeys(_STAGES, True)
