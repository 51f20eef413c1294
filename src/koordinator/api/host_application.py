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
    """The folder below the base."""
    relative_path: str = ""
    """The folder below that."""


class HostApplicationStrategy(WireStruct):
    """Empty."""


class HostApplicationSpec(WireStruct):
    """A program that runs on the node beside Kubernetes and counts as one of a class of pods."""

    name: str = ""
    """The name that its usage is reported under."""
    priority: str = ""
    """The priority class, such as koord-prod."""
    qos: str = ""
    """The quality-of-service class, such as LS."""
    cgroup_path: CgroupPath | None = None
    """The cgroup that it runs in."""
    strategy: HostApplicationStrategy | None = None
    """Reserved; empty."""
