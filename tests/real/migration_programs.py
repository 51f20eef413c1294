"""A cluster in which pods can move: a koord-scheduler and a descheduler, each ours or the original's, simulated nodes
and Kubernetes' controllers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from koordinator.api.document import Document
from koordinator.api.manifests import custom_resource_definitions
from tests.real.control_plane import ControlPlane
from tests.real.polling import until
from tests.real.programs import RealPrograms
from tests.real.scheduler_configuration import PLAIN, write_configuration

_RESERVATION: Final = {"name": "Reservation"}
_ENABLED: Final = {"enabled": [_RESERVATION]}
_SCHEDULER_PLUGINS: Final = {
    "preFilter": _ENABLED,
    "filter": _ENABLED,
    "postFilter": {"disabled": [{"name": "*"}], "enabled": [_RESERVATION, {"name": "DefaultPreemption"}]},
    "preScore": _ENABLED,
    "score": {"enabled": [{**_RESERVATION, "weight": 5000}]},
    "reserve": _ENABLED,
    "preBind": {"enabled": [_RESERVATION, {"name": "DefaultPreBind"}]},
    "bind": {"disabled": [{"name": "*"}], "enabled": [_RESERVATION, {"name": "DefaultBinder"}]},
}
_NODES: Final = 4


@contextmanager
def cluster_of_moving_pods(
    programs: RealPrograms, folder: Path, *, our_scheduler: bool = False
) -> Iterator[ControlPlane]:
    """Without a descheduler; a few nodes are ready."""
    plane = ControlPlane(programs.kubernetes, folder / "cluster")
    with ExitStack() as stack:
        stack.enter_context(plane)
        for definition in custom_resource_definitions():
            created(plane, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        created(plane, "/api/v1/namespaces", {"metadata": {"name": "koordinator-system"}})
        key = folder / "cluster/service-account.key"
        for name, command in (
            (
                "controller-manager",
                [
                    str(programs.kubernetes / "kube-controller-manager"),
                    f"--kubeconfig={plane.kubeconfig}",
                    "--leader-elect=false",
                    "--secure-port=0",
                    f"--service-account-private-key-file={key}",
                ],
            ),
            ("nodes", [sys.executable, "-m", "koordinator.cluster.nodes", f"--kubeconfig={plane.kubeconfig}"]),
            ("scheduler", _scheduler(programs, plane.kubeconfig, folder, ours=our_scheduler)),
        ):
            extra = ["--nodes", str(_NODES)] if name == "nodes" else []
            stack.enter_context(running([*command, *extra], folder / f"{name}.log"))
        until(lambda: len(_ready_nodes(plane)) == _NODES, 60, "nodes to be ready")
        yield plane


@contextmanager
def descheduler(
    programs: RealPrograms,
    kubeconfig: Path,
    folder: Path,
    args: Mapping[str, Any],
    *,
    ours: bool,
    flags: Sequence[str] = (),
) -> Iterator[None]:
    """A descheduler with MigrationController alone."""
    own = [sys.executable, "-m", "koordinator.descheduler"]
    command = own if ours else [str(programs.original / "koord-descheduler")]
    name = "descheduler" if ours else "original-descheduler"
    path = write_descheduler_configuration(folder / "descheduler.yaml", kubeconfig, args)
    with running([*command, f"--config={path}", "--secure-port=0", "-v=4", *flags], folder / f"{name}.log"):
        yield


def write_descheduler_configuration(
    path: Path, kubeconfig: Path, args: Mapping[str, Any], election: Mapping[str, Any] | None = None
) -> Path:
    """Of a descheduler with MigrationController alone; without leader election where ``election`` is not given."""
    enabled = {"enabled": [{"name": "MigrationController"}]}
    document = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "leaderElection": dict(election or {"leaderElect": False}),
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "healthzBindAddress": "127.0.0.1:0",
        "metricsBindAddress": "127.0.0.1:0",
        "profiles": [
            {
                "name": "koord-descheduler",
                "plugins": {"evict": enabled, "filter": enabled},
                "pluginConfig": [{"name": "MigrationController", "args": dict(args)}],
            }
        ],
    }
    path.write_text(yaml.safe_dump(document))
    return path


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[None]:
    """A program around a block, in which it must not end."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield
            assert process.poll() is None, f"{command[0]} ended with {process.returncode}: {log.read_text()[-2000:]}"
        finally:
            process.kill()
            process.wait()


def deployment(replicas: int, **spec: Any) -> Document:
    """The Deployment web, whose pods koord-scheduler places; ``spec`` is of its pods."""
    labels = {"app": "web"}
    container = {"name": "main", "image": "image", "resources": {"requests": {"cpu": "100m"}}}
    pod = {"schedulerName": "koord-scheduler", "terminationGracePeriodSeconds": 1, "containers": [container], **spec}
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def budget(**spec: Any) -> Document:
    """The PodDisruptionBudget web of that Deployment."""
    return {"metadata": {"name": "web"}, "spec": {**spec, "selector": {"matchLabels": {"app": "web"}}}}


def created(plane: ControlPlane, path: str, document: Mapping[str, Any]) -> Document:
    status, response = plane.request("POST", path, dict(document))
    assert status == 201, response
    return response


def items(plane: ControlPlane, path: str) -> list[Document]:
    status, response = plane.request("GET", path)
    assert status == 200, response
    found: list[Document] = response["items"]
    return found


def is_ready(obj: Document) -> bool:
    conditions = obj.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _ready_nodes(plane: ControlPlane) -> list[Document]:
    return [node for node in items(plane, "/api/v1/nodes") if is_ready(node)]


def _scheduler(programs: RealPrograms, kubeconfig: Path, folder: Path, *, ours: bool) -> list[str]:
    profile = {**PLAIN, "plugins": _SCHEDULER_PLUGINS}
    configuration = write_configuration(folder / "scheduler.yaml", kubeconfig=kubeconfig, profile=profile)
    if ours:
        return [sys.executable, "-m", "koordinator.scheduler", f"--config={configuration}", "--port=0"]
    return [
        str(programs.original / "koord-scheduler"),
        f"--config={configuration}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--secure-port=0",
        "--port=0",
    ]
