"""Where the cgroups of pods and containers are: version, driver, and the paths that follow from them.

A *relative* folder is one without the root and, on version 1, without the controller: ``kubepods.slice/…``. It has no
slash at either end. The names are those of kubelet's cgroup managers and of the container runtimes.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from koordinator.api.host_application import (
    KUBEPODS,
    KUBEPODS_BEST_EFFORT,
    KUBEPODS_BURSTABLE,
    HostApplicationSpec,
)
from koordinator.api.qos import KubernetesQoS, QoSClass
from koordinator.node.errors import FileError, MissingFileError, NodeError
from koordinator.node.host import Host, exists, list_subfolders


class CgroupVersion(Enum):
    V1 = 1
    V2 = 2


class CgroupDriver(StrEnum):
    """Which of kubelet's two cgroup managers names the folders."""

    SYSTEMD = "systemd"
    CGROUPFS = "cgroupfs"


class ContainerIDError(NodeError):
    """A container ID of a pod's status that names no container runtime that we know."""


class UnknownCgroupError(NodeError):
    """A folder among the pods' cgroups that is neither a pod's nor a container's."""


@dataclass(frozen=True, slots=True)
class ContainerID:
    """What a pod's status says: ``containerd://4b3c…``."""

    runtime: str
    id: str

    def __str__(self) -> str:
        return f"{self.runtime}://{self.id}"


HYBRID: Final = "unified"
"""Where a hierarchy of version 2 may be mounted beside those of version 1, mostly without controllers."""

RUNTIME_PREFIXES: Final = {"docker": "docker-", "containerd": "cri-containerd-", "pouch": "pouch-", "cri-o": "crio-"}
"""What a runtime writes before a container's ID in the name of its systemd scope."""

_HOST_APPLICATION_PARENTS: Final = {
    QoSClass.LSE.value: "host-latency-sensitive",
    QoSClass.LSR.value: "host-latency-sensitive",
    QoSClass.LS.value: "host-latency-sensitive",
    QoSClass.BE.value: "host-best-effort",
}
"""The folder of a program that runs beside Kubernetes, where none is configured."""
_QOS_OF_BASE: Final = {
    KUBEPODS: KubernetesQoS.GUARANTEED,
    KUBEPODS_BURSTABLE: KubernetesQoS.BURSTABLE,
    KUBEPODS_BEST_EFFORT: KubernetesQoS.BEST_EFFORT,
}
_KUBEPODS: Final = "kubepods"
_SLICE: Final = ".slice"
_DEEPEST: Final = 5
"""How far below the root the folder of all pods is looked for: kubelets in containers or of users have one there."""
_MOST_FOLDERS: Final = 5000


def detect_version(host: Host) -> CgroupVersion:
    """By the file that the root of every version 2 hierarchy has, and the folder of version 1's hierarchies has not.

    The original checks the type of the file system, which says the same, but not of a recorded or simulated tree.
    MissingFileError if nothing is mounted there.
    """
    if exists(f"{host.cgroup}/cgroup.controllers"):
        return CgroupVersion.V2
    if not exists(host.cgroup):
        raise MissingFileError(host.cgroup, "does not exist: no cgroup hierarchy is mounted there")
    return CgroupVersion.V1


def kubepods_folder(driver: CgroupDriver, cgroup_root: str) -> str:
    """The relative folder of all pods of a kubelet whose configuration has this ``cgroupRoot``."""
    names = [*filter(None, cgroup_root.split("/")), _KUBEPODS]
    if driver is CgroupDriver.CGROUPFS:
        return "/".join(names)
    # To systemd, each dash of a name is a level of its tree of slices.
    joined = [name.replace("-", "_") for name in names]
    return "/".join("-".join(joined[:length]) + _SLICE for length in range(1, len(joined) + 1))


def find_kubepods(host: Host, version: CgroupVersion) -> tuple[CgroupDriver, str] | None:
    """The relative folder of all pods that a kubelet has made, and by its name the driver; None if there is none yet.

    That nearest to the root counts: in containers there may be others, of whole clusters that run in them.
    """
    root = f"{host.cgroup}/cpu" if version is CgroupVersion.V1 else host.cgroup
    level, seen = [""], 0
    for _ in range(_DEEPEST):
        level = [folder for parent in level for folder in _subfolders(root, parent)]
        found = [(driver, folder) for folder in level if (driver := _driver_of(folder)) is not None]
        if found:
            # What a kubelet with the other driver has left is mostly that of an earlier installation.
            return min(found, key=lambda each: each[0] is not CgroupDriver.SYSTEMD)
        seen += len(level)
        if seen > _MOST_FOLDERS:
            break
    return None


def _driver_of(folder: str) -> CgroupDriver | None:
    """Whose folder of all pods it is, if it is one."""
    name = folder.rpartition("/")[2]
    if name == _KUBEPODS:
        return CgroupDriver.CGROUPFS
    is_slice = name == f"{_KUBEPODS}{_SLICE}" or name.endswith(f"-{_KUBEPODS}{_SLICE}")
    return CgroupDriver.SYSTEMD if is_slice else None


def _subfolders(root: str, parent: str) -> list[str]:
    try:
        names = list_subfolders(f"{root}/{parent}" if parent else root)
    except FileError:
        # Cgroups end all the time.
        return []
    return [f"{parent}/{name}" if parent else name for name in names]


@dataclass(frozen=True, slots=True)
class CgroupLayout:
    """The paths of one machine. ``kubepods`` is the relative folder of all pods, which is that of Guaranteed pods, too;
    that of a kubelet without a ``cgroupRoot`` unless it is given."""

    root: str
    version: CgroupVersion
    driver: CgroupDriver
    kubepods: str = ""

    def __post_init__(self) -> None:
        if not self.kubepods:
            object.__setattr__(self, "kubepods", kubepods_folder(self.driver, ""))

    def folder(self, controller: str, relative: str) -> str:
        """The folder of a cgroup; the controller counts on version 1 only."""
        parts = (self.root, controller, relative) if self.version is CgroupVersion.V1 else (self.root, relative)
        return "/".join(part for part in parts if part)

    def qos(self, kubernetes_qos: str) -> str:
        """The relative folder of all pods of a QoS class of Kubernetes."""
        if kubernetes_qos not in (KubernetesQoS.BURSTABLE, KubernetesQoS.BEST_EFFORT):
            return self.kubepods
        name = kubernetes_qos.lower()
        return f"{self.kubepods}/{f'{self._prefix}-{name}{_SLICE}' if self.driver is CgroupDriver.SYSTEMD else name}"

    def pod(self, uid: str, kubernetes_qos: str) -> str:
        """The relative folder of a pod. The UID is kubelet's: the API server has another one for a static pod."""
        parent = self.qos(kubernetes_qos)
        if self.driver is CgroupDriver.CGROUPFS:
            return f"{parent}/pod{uid}"
        # systemd takes a dash for a level of its tree of slices.
        prefix = parent.rpartition("/")[2].removesuffix(_SLICE)
        return f"{parent}/{prefix}-pod{uid.replace('-', '_')}{_SLICE}"

    def container(self, pod: str, container_id: ContainerID) -> str:
        """The relative folder of a container, below its pod's relative folder."""
        return f"{pod}/{self.container_name(container_id)}"

    def host_application(self, spec: HostApplicationSpec) -> str:
        """The relative folder of a program that runs beside Kubernetes; what climbs above the root ends at the root."""
        path = spec.cgroup_path
        if path is None:
            base = _HOST_APPLICATION_PARENTS.get(spec.qos, "")
            parts: tuple[str, ...] = (base, spec.name)
        else:
            qos = _QOS_OF_BASE.get(path.base)
            parts = ("" if qos is None else self.qos(qos), path.parent_dir, path.relative_path)
        return posixpath.normpath("/" + "/".join(parts)).strip("/")

    def container_name(self, container_id: ContainerID) -> str:
        """The last part of a container's folder."""
        if self.driver is CgroupDriver.CGROUPFS:
            return container_id.id
        return f"{RUNTIME_PREFIXES[container_id.runtime]}{container_id.id}.scope"

    def pod_uid(self, name: str) -> str:
        """The UID in the name of a pod's folder; with the systemd driver its dashes are underscores.

        UnknownCgroupError if it is not the folder of a pod.
        """
        if self.driver is CgroupDriver.CGROUPFS:
            if name.startswith("pod") and len(name) > len("pod"):
                return name.removeprefix("pod")
            raise UnknownCgroupError(f"{name} is not the cgroup of a pod: pod<UID> is expected")
        for class_ in ("-besteffort", "-burstable", ""):
            prefix = f"{self._prefix}{class_}-pod"
            if name.startswith(prefix) and name.endswith(_SLICE):
                return name[len(prefix) : -len(_SLICE)]
        raise UnknownCgroupError(f"{name} is not the cgroup of a pod: {self._prefix}[-QOS]-pod<UID>.slice is expected")

    @property
    def _prefix(self) -> str:
        """With the systemd driver, what the names of all slices of pods begin with."""
        return self.kubepods.rpartition("/")[2].removesuffix(_SLICE)

    def container_id(self, name: str) -> str:
        """The ID in the name of a container's folder; UnknownCgroupError if it is not the folder of a container."""
        if self.driver is CgroupDriver.CGROUPFS:
            return name
        for prefix in RUNTIME_PREFIXES.values():
            if name.startswith(prefix) and name.endswith(".scope"):
                return name[len(prefix) : -len(".scope")]
        # CRI-O runs sandboxes without a process of their own in a folder that is not a scope.
        if name.startswith(RUNTIME_PREFIXES["cri-o"]) and "." not in name:
            return name.removeprefix(RUNTIME_PREFIXES["cri-o"])
        raise UnknownCgroupError(f"{name} is not the cgroup of a container: <runtime>-<ID>.scope is expected")


def parse_container_id(text: str) -> ContainerID:
    """A container ID of a pod's status; ContainerIDError if it names no runtime that we know."""
    runtime, separator, identifier = text.partition("://")
    if not separator:
        raise ContainerIDError(f"parse container id {text} failed")
    if runtime not in RUNTIME_PREFIXES:
        raise ContainerIDError(f"unknown container protocol {text}")
    return ContainerID(runtime, identifier)


def kubernetes_qos_of(relative: str) -> KubernetesQoS:
    """The QoS class of Kubernetes whose folder a relative folder is in."""
    if "besteffort" in relative:
        return KubernetesQoS.BEST_EFFORT
    if "burstable" in relative:
        return KubernetesQoS.BURSTABLE
    return KubernetesQoS.GUARANTEED
