"""Paths of cgroups: two drivers, three QoS classes, four runtimes."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordinator.node.cgroup_layout import (
    CgroupDriver,
    CgroupLayout,
    CgroupVersion,
    ContainerID,
    ContainerIDError,
    UnknownCgroupError,
    detect_version,
    find_kubepods,
    kubepods_folder,
    kubernetes_qos_of,
    parse_container_id,
)
from koordinator.node.errors import MissingFileError
from tests.node.machine import FakeMachine

SYSTEMD = CgroupLayout("/cg", CgroupVersion.V1, CgroupDriver.SYSTEMD)
CGROUPFS = CgroupLayout("/cg", CgroupVersion.V2, CgroupDriver.CGROUPFS)
UID = "6f0d2b6a-0b3c-4f55-9d1f-000000000001"
UNDERSCORES = UID.replace("-", "_")


@pytest.mark.parametrize(
    ("layout", "qos", "folder"),
    [
        (SYSTEMD, "Guaranteed", f"kubepods.slice/kubepods-pod{UNDERSCORES}.slice"),
        (SYSTEMD, "Burstable", f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORES}.slice"),
        (SYSTEMD, "BestEffort", f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDERSCORES}.slice"),
        (CGROUPFS, "Guaranteed", f"kubepods/pod{UID}"),
        (CGROUPFS, "Burstable", f"kubepods/burstable/pod{UID}"),
        (CGROUPFS, "BestEffort", f"kubepods/besteffort/pod{UID}"),
    ],
)
def test_folder_of_a_pod(layout: CgroupLayout, qos: str, folder: str) -> None:
    assert layout.pod(UID, qos) == folder
    assert kubernetes_qos_of(folder) == qos
    assert layout.pod_uid(folder.rpartition("/")[2]).replace("_", "-") == UID


@pytest.mark.parametrize(
    ("runtime", "scope"),
    [
        ("docker", "docker-4b3c.scope"),
        ("containerd", "cri-containerd-4b3c.scope"),
        ("pouch", "pouch-4b3c.scope"),
        ("cri-o", "crio-4b3c.scope"),
    ],
)
def test_folder_of_a_container(runtime: str, scope: str) -> None:
    container = parse_container_id(f"{runtime}://4b3c")
    assert container == ContainerID(runtime, "4b3c")
    assert str(container) == f"{runtime}://4b3c"
    assert SYSTEMD.container("kubepods.slice/p.slice", container) == f"kubepods.slice/p.slice/{scope}"
    assert SYSTEMD.container_id(scope) == "4b3c"
    assert CGROUPFS.container("kubepods/podx", container) == "kubepods/podx/4b3c"
    assert CGROUPFS.container_id("4b3c") == "4b3c"


def test_a_sandbox_of_cri_o_without_a_scope() -> None:
    assert SYSTEMD.container_id("crio-4b3c") == "4b3c"


@pytest.mark.parametrize("name", ["4b3c.scope", "cri-containerd-4b3c", "crio-conmon-4b3c.service", "init.scope"])
def test_a_folder_that_is_not_a_containers(name: str) -> None:
    with pytest.raises(UnknownCgroupError, match="not the cgroup of a container"):
        SYSTEMD.container_id(name)


@pytest.mark.parametrize(
    ("layout", "name"),
    [(SYSTEMD, "kubepods-burstable.slice"), (SYSTEMD, f"pod{UID}"), (CGROUPFS, "burstable"), (CGROUPFS, "pod")],
)
def test_a_folder_that_is_not_a_pods(layout: CgroupLayout, name: str) -> None:
    with pytest.raises(UnknownCgroupError, match="not the cgroup of a pod"):
        layout.pod_uid(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [("4b3c", "parse container id 4b3c failed"), ("", "parse container id"), ("rkt://1", "unknown container protocol")],
)
def test_container_ids_that_name_no_known_runtime(text: str, message: str) -> None:
    with pytest.raises(ContainerIDError, match=message):
        parse_container_id(text)


def test_controllers_are_folders_on_version_1_only() -> None:
    assert SYSTEMD.folder("cpu", "kubepods.slice") == "/cg/cpu/kubepods.slice"
    assert CGROUPFS.folder("cpu", "kubepods") == "/cg/kubepods"
    assert SYSTEMD.folder("memory", "") == "/cg/memory"


def test_version_by_the_root_folder(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    with pytest.raises(MissingFileError, match="no cgroup hierarchy"):
        detect_version(machine.host)
    machine.write("/sys/fs/cgroup/cpu/cpu.shares", "1024\n")
    assert detect_version(machine.host) is CgroupVersion.V1
    machine.write("/sys/fs/cgroup/cgroup.controllers", "cpu\n")
    assert detect_version(machine.host) is CgroupVersion.V2


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["cpu/kubepods.slice"], (CgroupDriver.SYSTEMD, "kubepods.slice")),
        (["cpu/kubepods"], (CgroupDriver.CGROUPFS, "kubepods")),
        (["cpu/system.slice"], None),
        (["memory/kubepods"], None),
        # The kubelet of a node of kind, with either driver; that of a user; one in a container beside one on the host.
        (["cpu/kubelet/kubepods"], (CgroupDriver.CGROUPFS, "kubelet/kubepods")),
        (
            ["cpu/kubelet.slice/kubelet-kubepods.slice"],
            (CgroupDriver.SYSTEMD, "kubelet.slice/kubelet-kubepods.slice"),
        ),
        (
            ["cpu/user.slice/user-1.slice/user@1.service/kubepods.slice"],
            (CgroupDriver.SYSTEMD, "user.slice/user-1.slice/user@1.service/kubepods.slice"),
        ),
        (["cpu/docker/4b3c/kubepods", "cpu/kubepods.slice"], (CgroupDriver.SYSTEMD, "kubepods.slice")),
        (["cpu/kubepods", "cpu/kubepods.slice"], (CgroupDriver.SYSTEMD, "kubepods.slice")),
    ],
)
def test_the_folder_of_all_pods_that_kubelet_made(
    tmp_path: Path, paths: list[str], found: tuple[CgroupDriver, str] | None
) -> None:
    machine = FakeMachine(tmp_path)
    for path in paths:
        machine.write(f"/sys/fs/cgroup/{path}/cpu.shares", "1\n")
    assert find_kubepods(machine.host, CgroupVersion.V1) == found


@pytest.mark.parametrize(
    ("driver", "root", "pod"),
    [
        (CgroupDriver.CGROUPFS, "/kubelet", f"kubelet/kubepods/burstable/pod{UID}"),
        (
            CgroupDriver.SYSTEMD,
            "/kubelet",
            "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
            f"kubelet-kubepods-burstable-pod{UNDERSCORES}.slice",
        ),
        (
            CgroupDriver.SYSTEMD,
            "/a-b/c/",
            "a_b.slice/a_b-c.slice/a_b-c-kubepods.slice/a_b-c-kubepods-burstable.slice/"
            f"a_b-c-kubepods-burstable-pod{UNDERSCORES}.slice",
        ),
    ],
)
def test_pods_below_a_cgroup_root(driver: CgroupDriver, root: str, pod: str) -> None:
    layout = CgroupLayout("/cg", CgroupVersion.V2, driver, kubepods_folder(driver, root))
    assert layout.pod(UID, "Burstable") == pod
    assert layout.pod_uid(pod.rpartition("/")[2]).replace("_", "-") == UID
