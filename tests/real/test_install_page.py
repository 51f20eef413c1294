"""docs/install.md, command by command, on an empty real API server: installed, used, upgraded, removed."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from pathlib import Path

from tests.free_ports import free_ports
from tests.real.control_plane import ControlPlane
from tests.real.installation import (
    PROGRAMS,
    REPOSITORY,
    create_node,
    eventually,
    node_of,
    program,
    report_usage,
    shell,
)
from tests.real.manager_cluster import configurations

PAGE = (REPOSITORY / "docs/install.md").read_text()


def commands(section: str) -> list[str]:
    """The command lines of one section of the page, in their order."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]


def start(running: ExitStack, command: str, folder: Path, *ports: str) -> Path:
    """A program as the page starts it, on ports that are free, in the background. Returns its log."""
    home = {"HOME": str(folder)}
    words = [word.replace("$HOME", home["HOME"]) for word in shlex.split(command)]
    log = folder / f"{words[0]}.log"
    running.enter_context(program([str(PROGRAMS / words[0]), *words[1:], *ports], log, folder=folder, variables=home))
    return log


def batch_cpu(plane: ControlPlane) -> str | None:
    amount: str | None = plane.request("GET", "/api/v1/nodes/n1")[1]["status"]["allocatable"].get(
        "kubernetes.io/batch-cpu"
    )
    return amount


def test_the_life_of_an_installation(plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube/config").write_text(plane.kubeconfig.read_text())
    scheduler_port, metrics_port, health_port = free_ports(3)
    manager_ports = (f"--metrics-addr=127.0.0.1:{metrics_port}", f"--health-probe-addr=127.0.0.1:{health_port}")
    install, configure, scheduler, controllers = commands("Without an image")
    with ExitStack() as running:
        for command in (install, configure):
            shell(command, plane.kubeconfig, tmp_path)
        log = start(running, scheduler, tmp_path, f"--port={scheduler_port}")
        start(running, controllers, tmp_path, *manager_ports, "--enable-pprof=false")
        create_node(plane, "n1")
        shell("kubectl apply -f docs/examples/co-location.yaml", plane.kubeconfig)
        eventually(lambda: node_of(plane, "web") == "n1", "node", log)
        eventually(lambda: report_usage(plane, "n1"), "NodeMetric")
        eventually(lambda: bool(batch_cpu(plane)), "batch CPU")

        compare, upgrade = commands("Upgrade")
        shell(f"{compare} || [ $? -eq 1 ]", plane.kubeconfig)
        shell(upgrade, plane.kubeconfig)

        stop_lending, look, remove, remove_all, *_ = commands("Remove")
        shell(stop_lending, plane.kubeconfig)
        eventually(lambda: not batch_cpu(plane), "end of lending")
        assert shell(look, plane.kubeconfig).split() == ["NODE", "BATCH", "n1", "<none>"]
    shell(remove, plane.kubeconfig)
    assert [found["reason"] for found in configurations(plane).values()] == ["NotFound", "NotFound"]
    # A namespace goes with a controller manager, which is not here.
    shell(f"{remove_all} --wait=false", plane.kubeconfig)


def test_the_way_out_of_refused_pods_works(plane: ControlPlane) -> None:
    shell("koord manifests --only=webhook,namespace | kubectl apply -f -", plane.kubeconfig)
    for command in commands("Remove")[-2:]:
        shell(command, plane.kubeconfig)
    assert [found["reason"] for found in configurations(plane).values()] == ["NotFound", "NotFound"]
