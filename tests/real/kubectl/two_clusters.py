"""The real control plane and the embedded one, each with its controllers, and kubectl on both of them at once."""

from __future__ import annotations

import base64
import difflib
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from koordinator.cluster.controllers.table import CONTROLLERS
from tests.real.control_plane import ControlPlane
from tests.real.controller_manager import controller_manager, our_controllers
from tests.real.kubectl.normal_form import normal_form
from tests.real.kubectl.runner import Kubectl
from tests.real.kubectl.scenario import Line, Scenario
from tests.real.polling import until
from tests.real.programs import RealPrograms

_OF_THE_SERVER: Final = (
    "clusterrole-aggregation-controller", "disruption-controller", "garbage-collector-controller",
    "namespace-controller", "resourcequota-controller",
)  # fmt: skip
"""What the embedded server does itself, by the names of kube-controller-manager."""
_OURS_ALONE: Final = frozenset(("job-orphaned-pod-controller", "simulated-volume-provisioner"))
"""The first is a part of the real job-controller; no real controller provisions simulated volumes."""
_ACCOUNTS: Final = "serviceaccount-controller"
_START_SECONDS: Final = 60.0
_AGREE_SECONDS: Final = 60.0
"""Controllers of a busy machine take as long; lines that agree take none of it."""
_PAUSE_SECONDS: Final = 0.4
_REPAIRED: Final = "ClusterIPNotAllocated"
"""The event of the real server that does not yet see in its own cache the address that it has just given a Service.
It is there on a busy machine alone, and says nothing of what a user did."""


@contextmanager
def two_clusters(programs: RealPrograms, folder: Path) -> Iterator[TwoClusters]:
    with two_control_planes(programs, folder) as kubeconfigs:
        yield TwoClusters(kubeconfigs, folder)


@contextmanager
def two_control_planes(programs: RealPrograms, folder: Path) -> Iterator[dict[str, Path]]:
    """The kubeconfigs of administrators, by "real" and "embedded"; both have controllers, and neither has nodes."""
    with ExitStack() as stack:
        # Without this controller no pod has an account to run as.
        disabled = () if _ACCOUNTS in CONTROLLERS else ("ServiceAccount",)
        plane = ControlPlane(
            programs.kubernetes, folder / "real", authorization_mode="RBAC",
            disabled_admission=disabled,
        )  # fmt: skip
        stack.callback(plane.stop)
        plane.begin()
        embedded = stack.enter_context(_embedded(folder))
        plane.wait_ready()
        stack.enter_context(our_controllers(embedded, folder / "our-controllers.log", tuple(CONTROLLERS)))
        manager = programs.kubernetes / "kube-controller-manager"
        names = (*(name for name in CONTROLLERS if name not in _OURS_ALONE), *_OF_THE_SERVER)
        stack.enter_context(controller_manager(manager, plane.kubeconfig, folder / "controller-manager.log", names))
        yield {"real": plane.kubeconfig, "embedded": embedded}


@contextmanager
def _embedded(folder: Path) -> Iterator[Path]:
    """The embedded API as a process of its own, as ``koord up`` starts it."""
    kubeconfig = folder / "embedded-kubeconfig"
    flags = (f"--data={folder / 'embedded'}", f"--kubeconfig={kubeconfig}", "--authorization-mode=RBAC")
    with subprocess.Popen([sys.executable, "-m", "koordinator.cluster", "--workload-controllers", *flags]) as server:
        try:
            until(lambda: kubeconfig.exists() or server.poll() is not None, _START_SECONDS, "the embedded API")
            assert server.poll() is None, "the embedded API ended early"
            yield kubeconfig
        finally:
            server.terminate()
            server.wait(20)


class TwoClusters:
    """Plays scenarios on both."""

    def __init__(self, kubeconfigs: dict[str, Path], folder: Path) -> None:
        self._kubeconfigs = kubeconfigs
        self._folder = folder

    def differences(self, scenario: Scenario) -> list[str]:
        """One for each line whose output is another, or is the same and is listed as another."""
        with ThreadPoolExecutor(len(self._kubeconfigs)) as threads:
            played = _Played(scenario, {who: self._kubectl(who, scenario) for who in self._kubeconfigs}, threads)
            try:
                return [found for line in scenario.lines if (found := played.difference(line))]
            finally:
                played.run(Line(f"delete namespace {scenario.name} --ignore-not-found --wait=false"))

    def _kubectl(self, who: str, scenario: Scenario) -> Kubectl:
        folder = self._folder / f"{who}-{scenario.name}"
        for name, contents in scenario.files.items():
            path = folder / "files" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(contents)
        folder.mkdir(exist_ok=True)
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(_in_namespace(self._kubeconfigs[who], scenario.name)))
        (folder / "files").mkdir(exist_ok=True)
        kubectl = Kubectl(kubeconfig, self._folder / f"{who}-cache", folder / "files")
        # It is there where the scenario was played before.
        kubectl.run("delete", "namespace", scenario.name, "--ignore-not-found")
        status, output = kubectl.run("create", "namespace", scenario.name)
        assert status == 0, output
        return kubectl


def _in_namespace(kubeconfig: Path, namespace: str) -> dict[str, Any]:
    """The access that a kubeconfig gives, under names that both clusters have."""
    document = yaml.safe_load(kubeconfig.read_text())
    cluster = document["clusters"][0]["cluster"]
    authority = cluster.get("certificate-authority-data") or base64.b64encode(
        Path(cluster["certificate-authority"]).read_bytes()
    ).decode("ascii")
    context = {"cluster": "cluster", "user": "admin", "namespace": namespace}
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "admin",
        "clusters": [
            {"name": "cluster", "cluster": {"server": cluster["server"], "certificate-authority-data": authority}}
        ],
        "users": [{"name": "admin", "user": {"token": document["users"][0]["user"]["token"]}}],
        "contexts": [{"name": "admin", "context": context}],
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Played:
    scenario: Scenario
    programs: dict[str, Kubectl]
    threads: ThreadPoolExecutor

    def difference(self, line: Line) -> str:
        """Empty where there is none. Lines that read are run until both controllers have come to the same."""
        outputs = self.run(line)
        deadline = time.monotonic() + (_AGREE_SECONDS if line.reads and not line.differs else 0.0)
        while outputs["real"] != outputs["embedded"] and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
            if _REPAIRED in outputs["real"]:
                self.programs["real"].run(
                    "delete", "events", "--all-namespaces", f"--field-selector=reason={_REPAIRED}"
                )
            outputs = self.run(line)
        if outputs["real"] == outputs["embedded"]:
            return f"kubectl {line.text}: is listed as {line.differs!r}, and is the same" if line.differs else ""
        return "" if line.differs else "\n".join((f"kubectl {line.text}", *_compared(outputs)))

    def run(self, line: Line) -> dict[str, str]:
        """What each prints, and the status that it ends with."""
        running = {who: self.threads.submit(self._output, kubectl, line) for who, kubectl in self.programs.items()}
        return {who: future.result() for who, future in running.items()}

    @staticmethod
    def _output(kubectl: Kubectl, line: Line) -> str:
        status, output = kubectl.run(*line.arguments, variables=line.variables)
        return f"{normal_form(output)}\nends with status {status}"


def _compared(outputs: dict[str, str]) -> Iterator[str]:
    real, embedded = (outputs[who].splitlines() for who in ("real", "embedded"))
    return difflib.unified_diff(real, embedded, "real", "embedded", lineterm="", n=1)
