"""Settings of the kubelet that people use, for ``real-node.sh`` (``KUBELET_EXTRA``, ``OCI``) and for tests without it.

The fields are those of ``KubeletConfiguration`` (kubelet.config.k8s.io/v1beta1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True)
class KubeletSettings:
    """``fields`` of the configuration, ``oci`` for another OCI runtime than runc, and what the machine ``needs``."""

    name: str
    what: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    oci: str = ""
    needs: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """For the program that starts a real node: a line a field, whose values are JSON, which is YAML too."""
        lines = [f"{name}: {value if _is_word(value) else json.dumps(value)}" for name, value in self.fields.items()]
        variables = {"KUBELET_EXTRA": "\n".join(lines)} if lines else {}
        return {**variables, "OCI": self.oci} if self.oci else variables


def _is_word(value: Any) -> bool:
    """Whether it is a text to YAML without quotes, too; the path of a cgroup must have none."""
    return isinstance(value, str) and not value.isdecimal()


KUBELET_CONFIGURATIONS: Final[Sequence[KubeletSettings]] = (
    KubeletSettings("default", "nothing but what the machine needs"),
    KubeletSettings(
        "short-quota-period",
        "quotas are given a period of 20 ms, so that pods with small limits wait less at a time",
        {"cpuCFSQuotaPeriod": "20ms", "featureGates": {"CustomCPUCFSQuotaPeriod": True}},
    ),
    KubeletSettings("no-quota", "CPU limits are not enforced at all", {"cpuCFSQuota": False}),
    KubeletSettings(
        "static-cpus",
        "Guaranteed pods with whole CPUs get CPUs of their own from the kubelet",
        {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"},
    ),
    KubeletSettings(
        "one-numa-node",
        "pods whose resources would come from several NUMA nodes are refused",
        {"topologyManagerPolicy": "single-numa-node", "cpuManagerPolicy": "static", "reservedSystemCPUs": "0"},
    ),
    KubeletSettings(
        "cgroup-root", "the cgroups of pods are below another one than the root", {"cgroupRoot": "/machine"}
    ),
    KubeletSettings(
        "crun",
        "another OCI runtime, which writes some files in another order",
        oci="crun",
        needs="crun, and cgroup version 2 alone",
    ),
    KubeletSettings(
        "systemd-driver",
        "cgroups are slices of systemd with names of their own",
        {"cgroupDriver": "systemd"},
        needs="systemd as the first process",
    ),
    KubeletSettings(
        "systemd-driver-memory-qos",
        "cgroups are slices of systemd, and the kubelet throttles and protects memory",
        {"cgroupDriver": "systemd", "featureGates": {"MemoryQoS": True}},
        needs="systemd as the first process, and cgroup version 2 alone",
    ),
    KubeletSettings(
        "managers",
        "the kubelet gives CPUs and memory to pods itself, and keeps a CPU from all of them",
        {
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"},
            "reservedSystemCPUs": "0",
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
            "featureGates": {"MemoryQoS": True},
        },
        needs="several CPUs, and cgroup version 2 alone",
    ),
    KubeletSettings(
        "reserved",
        "something of the node is kept from pods",
        {"systemReserved": {"cpu": "100m", "memory": "100Mi"}, "kubeReserved": {"cpu": "100m", "memory": "100Mi"}},
    ),
)


def kubelet_settings(name: str) -> KubeletSettings:
    """The settings of that name; KeyError if there are none."""
    return {settings.name: settings for settings in KUBELET_CONFIGURATIONS}[name]
