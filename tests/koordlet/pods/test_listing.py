"""Which pods are on the node, and where the kernel has their cgroups, whatever the kubelet and the runtime do."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.koordlet.pods.listing import PodListing
from koordinator.koordlet.pods.node_pod import NodePod, inner_folders
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.cgroup_reader import CgroupReader
from tests.real_world.pods import PODS


def listed(*names: str, runtime: str = "containerd", **status: Any) -> list[Pod]:
    """BestEffort pods as the kubelet lists them, each with a container that runs."""
    return [
        convert(
            {
                "metadata": {"name": name, "namespace": "shop", "uid": name},
                "spec": {"containers": [{"name": "main"}]},
                "status": {
                    "phase": "Running",
                    "containerStatuses": [{"name": "main", "containerID": f"{runtime}://{name}-main"}],
                    **status,
                },
            },
            Pod,
        )
        for name in names
    ]


class Kernel:
    """The cgroups of a machine, of version 2."""

    def __init__(self, root: Path, driver: CgroupDriver = CgroupDriver.CGROUPFS) -> None:
        self.layout = CgroupLayout(str(root), CgroupVersion.V2, driver)
        self.listing = PodListing(self.layout, CgroupReader(self.layout, 4096).processes)

    def make(self, pod: str, *folders: str, processes: Sequence[int] = (7,)) -> None:
        """The cgroup of a pod, and those in it, with processes in the last."""
        for folder in ("", *folders):
            path = self._path(pod) / folder
            path.mkdir(parents=True, exist_ok=True)
            (path / "cgroup.procs").write_text("")
        (path / "cgroup.procs").write_text("".join(f"{process}\n" for process in processes))

    def remove(self, pod: str) -> None:
        shutil.rmtree(self._path(pod))

    def end_all(self, pod: str) -> None:
        for path in self._path(pod).rglob("cgroup.procs"):
            path.write_text("")

    def update(self, pods: Sequence[Pod]) -> dict[str, NodePod]:
        self.listing.update(pods)
        return {pod.uid: pod for pod in self.listing.pods}

    def _path(self, pod: str) -> Path:
        return Path(self.layout.folder("cpu", self.layout.pod(pod, "BestEffort")))


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_a_pod_that_runs_stays_when_a_kubelet_that_has_restarted_leaves_it_out(kernel: Kernel) -> None:
    for name in ("db", "web"):
        kernel.make(name, f"{name}-main")
    kernel.update(listed("db", "web"))
    assert set(kernel.update(listed("web"))) == {"db", "web"}
    assert set(kernel.update(listed("web"))) == {"db", "web"}


@pytest.mark.parametrize("end", [Kernel.remove, Kernel.end_all])
def test_a_pod_is_gone_when_the_kernel_has_no_process_of_it(kernel: Kernel, end: Any) -> None:
    for name in ("db", "web"):
        kernel.make(name, f"{name}-main")
    kernel.update(listed("db", "web"))
    end(kernel, "db")
    only_web = listed("web")
    assert set(kernel.update(only_web)) == {"web"}


def test_a_pod_that_was_left_out_goes_when_it_ends_though_the_kubelet_says_nothing_new(kernel: Kernel) -> None:
    kernel.make("db", "db-main")
    kernel.make("web", "web-main")
    kernel.update(listed("db", "web"))
    only_web = listed("web")
    kernel.update(only_web)
    kernel.end_all("db")
    assert set(kernel.update(only_web)) == {"web"}


def pending(*names: str) -> list[Pod]:
    """As a kubelet that has just started lists static pods."""
    return listed(*names, phase="Pending", containerStatuses=[])


def test_a_pod_that_runs_keeps_its_containers_while_a_kubelet_that_has_restarted_has_not_looked_at_it(
    kernel: Kernel,
) -> None:
    kernel.make("web", "pause", "web-main")
    before = kernel.update(listed("web"))["web"]
    assert kernel.update(pending("web")) == {"web": before}


def test_a_pod_that_has_ended_has_no_containers_when_the_kubelet_lists_it_as_pending(kernel: Kernel) -> None:
    kernel.make("web", "pause", "web-main")
    kernel.update(listed("web"))
    kernel.end_all("web")
    web = kernel.update(pending("web"))["web"]
    assert (web.is_running, web.containers) == (False, ())


def test_what_is_left_out_is_logged_once(kernel: Kernel, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    kernel.make("db", "db-main")
    kernel.update(listed("db", "web"))
    for _ in range(3):
        kernel.update(listed("web"))
    assert [record.getMessage() for record in caplog.records if "does not list" in record.getMessage()] == [
        "pods that run stay although the kubelet does not list them any more: shop/db"
    ]


def test_nothing_new_gives_the_same_pods(kernel: Kernel) -> None:
    kernel.make("web", "pause", "web-main")
    pods = listed("web")
    kernel.update(pods)
    before = kernel.listing.pods
    kernel.update(pods)
    assert kernel.listing.pods is before


def test_a_pod_that_is_as_it_was_is_kept_when_another_has_changed(kernel: Kernel) -> None:
    for name in ("web", "db"):
        kernel.make(name, "pause", f"{name}-main")
    before = kernel.update(listed("web", "db"))
    after = kernel.update([*listed("web"), *listed("db", message="restarted")])
    assert after["web"] is before["web"]
    assert after["db"] is not before["db"]


def test_a_cgroup_that_comes_after_its_pod_was_listed_is_found(kernel: Kernel) -> None:
    pods = listed("web")
    assert not kernel.update(pods)["web"].is_found
    kernel.make("web", "pause", "web-main")
    web = kernel.update(pods)["web"]
    assert (web.is_found, web.sandbox) == (True, "kubepods/besteffort/podweb/pause")


@pytest.mark.parametrize(
    ("driver", "runtime", "folder"),
    [
        (CgroupDriver.SYSTEMD, "containerd", "cri-containerd-web-main.scope"),
        (CgroupDriver.SYSTEMD, "cri-o", "crio-web-main.scope"),
        (CgroupDriver.SYSTEMD, "docker", "docker-web-main.scope"),
        (CgroupDriver.CGROUPFS, "containerd", "web-main"),
        (CgroupDriver.CGROUPFS, "cri-o", "crio-web-main"),
    ],
)
def test_the_folder_of_a_container_as_its_runtime_names_it(
    tmp_path: Path, driver: CgroupDriver, runtime: str, folder: str
) -> None:
    kernel = Kernel(tmp_path, driver)
    kernel.make("web", "crio-conmon-web-main.scope", folder)
    (container,) = kernel.update(listed("web", runtime=runtime))["web"].containers
    assert container.cgroup.rpartition("/")[2] == folder


def test_the_folder_that_crun_makes_below_has_the_limits_too(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path, CgroupDriver.SYSTEMD)
    kernel.make("web", "crio-web-main.scope", "crio-web-main.scope/container")
    kernel.update(listed("web", runtime="cri-o"))
    scope = f"{kernel.layout.pod('web', 'BestEffort')}/crio-web-main.scope"
    assert inner_folders(kernel.listing.pods) == {scope: f"{scope}/container"}


def test_a_folder_of_that_name_that_a_container_has_made_is_left_alone(kernel: Kernel) -> None:
    kernel.make("web", "pause", "web-main", "web-main/container")
    kernel.update(listed("web"))
    assert inner_folders(kernel.listing.pods) == {}


def test_a_debugging_container_is_no_sandbox(kernel: Kernel) -> None:
    kernel.make("web", "pause", "web-main", "debugger")
    debugging = [{"name": "debug", "containerID": "containerd://debugger"}]
    web = kernel.update(listed("web", ephemeralContainerStatuses=debugging))["web"]
    assert web.sandbox == "kubepods/besteffort/podweb/pause"
    assert [each.name for each in web.running] == ["main", "debug"]


def test_what_a_restarted_container_leaves_is_no_sandbox(kernel: Kernel) -> None:
    kernel.make("web", "pause", "web-main")
    kernel.update(listed("web"))
    kernel.make("web", "web-main", "web-again")
    again = listed("web", containerStatuses=[{"name": "main", "containerID": "containerd://web-again"}])
    assert kernel.update(again)["web"].sandbox == "kubepods/besteffort/podweb/pause"


def test_pods_without_cgroups_are_named_once_at_the_second_look(
    kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    kernel.make("web", "pause", "web-main")
    pods = listed("web", "db")
    kernel.update(pods)
    assert not caplog.records
    for _ in range(2):
        kernel.update(pods)
    (record,) = caplog.records
    assert record.getMessage() == (
        "1 of 2 pods are not wholly measured and looked after: cgroups of theirs are missing in kubepods: "
        "shop/db (kubepods/besteffort/poddb)"
    )
    assert [pod.uid for pod in kernel.listing.without_cgroups] == ["db"]


@pytest.mark.parametrize("shape", PODS, ids=lambda shape: shape.name)
def test_every_container_that_runs_is_found(kernel: Kernel, shape: Any) -> None:
    pod = convert(shape.running("shop", "node-1", "uid"), Pod)
    status = pod.status
    statuses = (*status.container_statuses, *status.init_container_statuses, *status.ephemeral_container_statuses)
    identifiers = {
        each.name: each.container_id.rpartition("://")[2]
        for each in statuses
        if each.container_id and each.state.terminated is None
    }
    folder = Path(kernel.layout.folder("cpu", kernel.layout.pod("uid", status.qos_class or "BestEffort")))
    for name in ("pause", *identifiers.values()):
        (folder / name).mkdir(parents=True)
    found = kernel.update([pod])["uid"]
    assert {each.name: each.cgroup.rpartition("/")[2] for each in found.running} == identifiers
    assert found.is_found
