"""The original's own end-to-end specs, run against its programs and against ours: what passes there passes here.

The specs are a Go test binary of the original's repository, which is not among the packed programs::

    go test -vet=off -c -o e2e.test ./test/e2e
    KOORDINATOR_E2E_BINARY=$PWD/e2e.test python -m pytest tests/real/test_original_specs.py -m slow

Nodes are simulated; specs of devices and of NUMA nodes are left out. All the others pass with ours, in five minutes.
With the original five fail: two of host ports, one each of topology spread, of preemption in a Restricted Reservation,
and of guaranteed quotas. Its run takes eight minutes, since a spec that fails waits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import create, install, prepare
from tests.real.manager_process import OURS, manager
from tests.real.migration_programs import is_ready, items, running
from tests.real.polling import until
from tests.real.programs import RealPrograms
from tests.real.scheduler_configuration import write_configuration

_NODES: Final = 2
# The specs halve what a node has, in whole CPUs; and they reserve 8Gi, of which 7Gi are taken, and expect that a pod of
# 2Gi fits only if it takes from what is left of these and from the node.
_SCENARIO: Final = """\
name: specs
nodeGroups:
- name: node
  count: 2
  cpu: "8"
  memory: 9984Mi
  reserved: {cpu: "0", memory: "0"}
"""
_SECONDS: Final = 1800
_PRIORITY_CLASSES: Final = Path(__file__).resolve().parents[2] / "config/priority-classes.yaml"
_QUOTAS: Final = "basic-quota|multi-quota-tree|quota-guaranteed"
_PLACING: Final = "BatchResource|Preempt basic|Preemption with CPU|Reservation|HostPort"
_SKIPPED: Final = "DeviceShare|NodeNUMAResource|Preemption with device"


def _plugins(**points: str) -> dict[str, Any]:
    """Names, in order; ``-`` before them for "and none of the defaults"."""
    found: dict[str, Any] = {}
    for point, names in points.items():
        enabled = [{"name": name} for name in names.removeprefix("-").split()]
        found[point] = {"enabled": enabled, **({"disabled": [{"name": "*"}]} if names.startswith("-") else {})}
    return found


# As the original's chart has it, without devices and NUMA nodes.
PLUGINS: Final = _plugins(
    preEnqueue="Coscheduling",
    preFilter="Reservation Coscheduling ElasticQuota",
    filter="LoadAwareScheduling Reservation",
    postFilter="-Reservation Coscheduling ElasticQuota DefaultPreemption",
    preScore="Reservation Coscheduling",
    reserve="Reservation LoadAwareScheduling Coscheduling ElasticQuota",
    permit="Coscheduling",
    preBind="Reservation Coscheduling DefaultPreBind",
    bind="-Reservation DefaultBinder",
    postBind="Coscheduling",
) | {
    "score": {
        "enabled": [
            {"name": "LoadAwareScheduling", "weight": 1},
            {"name": "Reservation", "weight": 5000},
            {"name": "Coscheduling", "weight": 1},
        ]
    }
}


def run_specs(
    binary: Path, who: str, programs: RealPrograms, folder: Path, focus: str, scheduler_name: str, gates: str = ""
) -> Mapping[str, bool]:
    """Spec -> whether it passed, with the programs of ``who``: ``ours`` or ``original``."""
    plane = ControlPlane(programs.kubernetes, folder / "cluster")
    with ExitStack() as stack:
        stack.enter_context(plane)
        _start_cluster(stack, plane, programs, folder)
        is_ours = who == "ours"
        command = OURS if is_ours else (str(programs.original / "koord-manager"),)
        arguments = ["--enable-leader-election=false", *_gates_flag("MultiQuotaTree=true" if gates else "")]
        stack.enter_context(manager(command, plane.kubeconfig, folder, arguments=arguments)).wait_ready()
        profile = {"schedulerName": scheduler_name, "plugins": PLUGINS}
        own = [sys.executable, "-m", "koordinator.scheduler", "--port=0", "--secure-port=0"]
        scheduler = own if is_ours else _original_scheduler(programs, plane)
        _start_scheduler(stack, [*scheduler, *_gates_flag(gates)], plane, folder, profile)
        if scheduler_name != "default-scheduler":
            # Some specs ask Kubernetes' own scheduler for a node first.
            plain = {"schedulerName": "default-scheduler"}
            _start_scheduler(stack, _original_scheduler(programs, plane), plane, folder, plain)
        return _run(binary, plane, folder, focus)


def _gates_flag(gates: str) -> list[str]:
    return [f"--feature-gates={gates}"] if gates else []


def _start_cluster(stack: ExitStack, plane: ControlPlane, programs: RealPrograms, folder: Path) -> None:
    prepare(plane)
    install(plane)
    for document in yaml.safe_load_all(_PRIORITY_CLASSES.read_text()):
        create(plane, "/apis/scheduling.k8s.io/v1/priorityclasses", document)
    controllers = [
        str(programs.kubernetes / "kube-controller-manager"),
        f"--kubeconfig={plane.kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        f"--service-account-private-key-file={folder / 'cluster/service-account.key'}",
    ]
    stack.enter_context(running(controllers, folder / "controllers.log"))
    scenario = folder / "scenario.yaml"
    scenario.write_text(_SCENARIO)
    nodes = [sys.executable, "-m", "koordinator.cluster.nodes", f"--kubeconfig={plane.kubeconfig}"]
    stack.enter_context(running([*nodes, f"--scenario={scenario}"], folder / "nodes.log"))
    until(lambda: sum(is_ready(node) for node in items(plane, "/api/v1/nodes")) == _NODES, 60, "nodes to be ready")


def _original_scheduler(programs: RealPrograms, plane: ControlPlane) -> list[str]:
    access = [f"--{kind}-kubeconfig={plane.kubeconfig}" for kind in ("authentication", "authorization")]
    return [str(programs.original / "koord-scheduler"), *access, "--secure-port=0", "--port=0"]


def _start_scheduler(
    stack: ExitStack, command: list[str], plane: ControlPlane, folder: Path, profile: Mapping[str, Any]
) -> None:
    name = profile["schedulerName"]
    configuration = write_configuration(folder / f"{name}.yaml", kubeconfig=plane.kubeconfig, profile=profile)
    stack.enter_context(running([*command, f"--config={configuration}"], folder / f"{name}.log"))


def _run(binary: Path, plane: ControlPlane, folder: Path, focus: str) -> Mapping[str, bool]:
    report = folder / "report.xml"
    arguments = [
        f"-kubeconfig={plane.kubeconfig}",
        "-provider=local",
        f"-num-nodes={_NODES}",
        "-e2e-verify-service-account=false",
        "-allowed-not-ready-nodes=1",
        "-system-pods-startup-timeout=10s",
        f"-ginkgo.focus={focus}",
        f"-ginkgo.skip={_SKIPPED}",
        f"-ginkgo.junit-report={report}",
        "-ginkgo.seed=1",
        f"-ginkgo.timeout={_SECONDS}s",
    ]
    with (folder / "specs.log").open("wb") as output:
        subprocess.run(
            [str(binary), *arguments], stdout=output, stderr=output, cwd=folder, timeout=_SECONDS + 60, check=False
        )
    cases = ElementTree.parse(report).getroot().iter("testcase")
    results = {case.attrib["name"]: case.attrib["status"] for case in cases if case.attrib["name"].startswith("[It]")}
    return {name: status == "passed" for name, status in results.items() if status != "skipped"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("focus", "scheduler_name", "gates"),
    [
        # Their pods name no scheduler.
        (_QUOTAS, "default-scheduler", "MultiQuotaTree=true,ElasticQuotaGuaranteeUsage=true"),
        (_PLACING, "koord-scheduler", ""),
    ],
    ids=["quotas", "placing"],
)
def test_all_specs_pass_with_ours_whether_they_do_with_the_original_or_not(
    focus: str, scheduler_name: str, gates: str, real_programs: RealPrograms, tmp_path: Path
) -> None:
    binary = os.environ.get("KOORDINATOR_E2E_BINARY")
    if not binary:
        pytest.skip("the original's specs are absent: KOORDINATOR_E2E_BINARY names them (see the head of this file)")
    results = {}
    for who in ("original", "ours"):
        folder = tmp_path / who
        folder.mkdir()
        results[who] = run_specs(Path(binary), who, real_programs, folder, focus, scheduler_name, gates)
        (folder / "results.json").write_text(json.dumps(results[who], indent=1))
    assert results["ours"]
    assert set(results["ours"]) == set(results["original"]), "both were asked the same"
    assert not sorted(name for name, has_passed in results["ours"].items() if not has_passed)
