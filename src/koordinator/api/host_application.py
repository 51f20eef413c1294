"""Part of NodeSLO: programs that run on a node beside Kubernetes and count as a class of pods."""

from __future__ import annotations

from typing import Final

from koordinator.api.meta import WireStruct

CGROUP_ROOT: Final = "CgroupRoot"
KUBEPODS: Final = "Kubepods"
KUBEPODS_BURSTABLE: Final = "KubepodsBurstable"
KUBEPODS_BEST_EFFORT: Final = "KubepodsBesteffort"


class CgroupPath(WireStruct):
    """``base``, then ``parent_dir``, then ``relative_path``."""

    base: str = ""
    """CgroupRoot, Kubepods, KubepodsBurstable or KubepodsBesteffort."""
    parent_dir: str = ""
    relative_path: str = ""


class HostApplicationStrategy(WireStruct):
    """Empty."""


class HostApplicationSpec(WireStruct):
    name: str = ""
    priority: str = ""
    """The priority class, such as koord-prod."""
    qos: str = ""
    """The quality-of-service class, such as LS."""
    cgroup_path: CgroupPath | None = None
    strategy: HostApplicationStrategy | None = None
