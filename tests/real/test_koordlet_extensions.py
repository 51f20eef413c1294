"""What other packages add to koordlet, on a real node: the examples of docs/koordlet.md, installed beside the program.

Containerd, runc and kubelet run a best-effort pod; the kernel's files and the API server say what koordlet does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.real.polling import until
from tests.real.real_node import REPOSITORY, EnforcedNode, real_node

_NODE = "extended-node"
_NAMESPACE = "extended-test"
_NAME = "example.com/cool-machine"
_CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "koordlet-config", "namespace": _NAMESPACE}}


@dataclass(frozen=True)
class Extended:
    node: EnforcedNode
    folder: Path
    log: Path

    def heat(self, degrees: int) -> None:
        (self.folder / "temperature").write_text(f"{degrees}000\n")

    def configure(self, **flags: str) -> None:
        self.node.apply({**_CONFIG, "data": {name.replace("_", "-"): text for name, text in flags.items()}})

    @property
    def quota(self) -> int:
        """Of best-effort pods, in microseconds; -1 for none."""
        for name in ("cpu/kubepods/besteffort/cpu.cfs_quota_us", "kubepods/besteffort/cpu.max"):
            file = Path("/sys/fs/cgroup", name)
            if file.is_file():
                return int(file.read_text().split()[0].replace("max", "-1"))
        raise AssertionError("there is no folder of best-effort pods")

    def expect(self, limited: bool, why: str) -> None:
        until(lambda: (self.quota > 0) is limited, 60, f"{why}: {self.log.read_text()[-3000:]}")


@pytest.fixture(scope="module")
def extended(real_cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extended]:
    folder = tmp_path_factory.mktemp("extended")
    packages = folder / "packages"
    offline = ("--no-index", "--no-build-isolation", "--no-deps", "--disable-pip-version-check", "--quiet")
    examples = [REPOSITORY / f"docs/examples/koordlet-{name}" for name in ("controller", "backend")]
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, "--target", packages, *examples], check=True)
    with real_node(real_cluster, folder, _NODE, _NAMESPACE) as node:
        node.run_pod(_best_effort_pod())
        made = Extended(node, folder, folder / "koordlet.log")
        made.heat(40)
        command = [
            *node.koordlet_command(folder),
            *(f"--configmap-namespace={_NAMESPACE}", "--kubelet-sync-interval=1s", f"--tsdb-path={folder}/samples"),
            "--metric-cache-backend=example.com/csv-files",
        ]
        paths = [str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {"KOORDLET_THERMAL_FILE": str(folder / "temperature"), "PYTHONPATH": os.pathsep.join(paths)}
        with made.log.open("wb") as stderr:
            process = subprocess.Popen(command, env={**os.environ, **node.koordlet_environment, **own}, stderr=stderr)
        try:
            yield made
            assert process.poll() is None, made.log.read_text()
        finally:
            process.terminate()
            process.wait(20)


def _best_effort_pod() -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "job", "namespace": _NAMESPACE, "labels": {"koordinator.sh/qosClass": "BE"}},
        "spec": {
            "nodeName": _NODE,
            "hostNetwork": True,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {"name": "main", "image": "docker.io/library/pause:latest", "imagePullPolicy": "Never"},
            ],
        },
    }


def test_a_controller_holds_pods_down_through_the_executor_and_lets_them_go(extended: Extended) -> None:
    extended.heat(90)
    extended.expect(True, "the machine is hot")
    events = extended.node.get("events", namespace="default")["items"]
    (event,) = [each for each in events if each["reason"] == "MachineHot"]
    assert event["reportingComponent"] == _NAME
    extended.heat(60)
    extended.expect(False, "the machine is cool again")


def test_the_config_map_switches_a_controller_and_all_writing(extended: Extended) -> None:
    extended.configure(observe_only="true")
    until(lambda: "only observed" in extended.log.read_text(), 30, "observe-only is in force")
    extended.heat(90)
    until(lambda: "observe only: " in extended.log.read_text().partition("only observed")[2], 30, "it is observed")
    assert extended.quota == -1
    extended.configure()
    extended.expect(True, "what was observed is written")
    extended.configure(qos_extension_plugins=f"{_NAME}=false")
    until(lambda: f"{_NAME}=false" in extended.log.read_text(), 30, "the controller is off")
    before = extended.quota
    extended.heat(60)
    extended.configure(qos_extension_plugins=f"{_NAME}=true")
    extended.expect(False, f"it had {before}, and the machine is cool")


def test_a_backend_has_the_samples_of_the_node(extended: Extended) -> None:
    file = extended.folder / "samples/node.csv"
    until(lambda: file.exists() and len(file.read_text().splitlines()) > 10, 60, "samples are written")
    assert {line.split(",")[1] for line in file.read_text().splitlines()} >= {"node_cpu_usage", "node_memory_usage"}
