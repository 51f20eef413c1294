"""What a kubelet (v1.35, cgroupfs) sends for a pod to its container runtime.

The requests have fields that the proxy does not know, such as the image: it must leave them alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from koordinator.api.protobuf import cri_pb2 as cri
from koordinator.api.protobuf.runtime_hooks_pb2 import HugepageLimit, LinuxContainerResources
from koordinator.api.quantity import Quantity
from koordinator.base.protobuf_wire import encode_message, encode_text
from tests.real_world.pods import PodShape

_PERIOD = 100_000
_NODE_MEMORY = 16 << 30
# Fields of k8s.io/cri-api that the proxy's own description of it does not have.
_HOSTNAME, _LOG_FOLDER, _IMAGE, _COMMAND, _WORKING_FOLDER, _LABELS = 2, 3, 2, 3, 5, 9


@dataclass(frozen=True)
class KubeletPod:
    """A pod as a kubelet has it, and its requests. ``shape`` may have resizes and ephemeral containers."""

    document: Mapping[str, Any]
    uid: str
    qos_class: str = "Burstable"
    shape: PodShape | None = None

    @classmethod
    def of_shape(cls, shape: PodShape) -> KubeletPod:
        uid = "0f1e2d3c" * 4 if shape.is_static else "6f0f4a2e-5d3c-4a52-9d4f-0c6d3a1b2c3d"
        return cls(shape.document("shop"), uid, shape.qos_class, shape)

    @property
    def parent(self) -> str:
        """Its cgroup."""
        between = {"Guaranteed": "", "Burstable": "/burstable", "BestEffort": "/besteffort"}[self.qos_class]
        return f"/kubepods{between}/pod{self.uid}"

    def sandbox(self) -> cri.PodSandboxConfig:
        metadata, spec = self.document["metadata"], self.document["spec"]
        config = cri.PodSandboxConfig()
        config.metadata.name, config.metadata.namespace = metadata["name"], metadata["namespace"]
        config.metadata.uid = self.uid
        config.labels.update(metadata.get("labels", {}))
        config.labels.update(self._names())
        config.annotations.update(metadata.get("annotations", {}))
        config.annotations["kubernetes.io/config.seen"] = "2026-01-01T00:00:00.000000000Z"
        config.annotations.setdefault("kubernetes.io/config.source", "api")
        config.linux.cgroup_parent = self.parent
        holders = [spec] if "resources" in spec else [*spec["containers"], *filter(is_sidecar, _init(spec))]
        config.linux.resources.CopyFrom(_resources([each.get("resources", {}) for each in holders]))
        if "overhead" in spec:
            config.linux.overhead.CopyFrom(_resources([{"requests": spec["overhead"], "limits": spec["overhead"]}]))
        config.MergeFromString(encode_text(_HOSTNAME, metadata["name"]) + encode_text(_LOG_FOLDER, "/var/log/pods/x"))
        return config

    def run(self) -> cri.RunPodSandboxRequest:
        return cri.RunPodSandboxRequest(config=self.sandbox(), runtime_handler="runc")

    def containers(self) -> Iterator[Mapping[str, Any]]:
        """In the order in which they are started."""
        spec = self.document["spec"]
        yield from _init(spec)
        yield from spec["containers"]
        for change in self.shape.changes if self.shape is not None else ():
            yield from change.patch["spec"].get("ephemeralContainers", ())

    def create(self, container: Mapping[str, Any], sandbox: str) -> cri.CreateContainerRequest:
        request = cri.CreateContainerRequest(pod_sandbox_id=sandbox, sandbox_config=self.sandbox())
        config = request.config
        config.metadata.name = container["name"]
        variables = {"HOSTNAME": b"web", "KUBERNETES_SERVICE_HOST": b"10.96.0.1", "LATIN": b"caf\xe9"}
        config.envs.extend(cri.KeyValue(key=name, value=value) for name, value in variables.items())
        config.annotations.update(
            {
                "io.kubernetes.container.hash": "5a1f0c3e",
                "io.kubernetes.container.restartCount": "0",
                "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
            }
        )
        resources = _resources([container.get("resources", {})])
        resources.oom_score_adj = self._oom_score(container)
        config.linux.resources.CopyFrom(resources)
        labels = {**self._names(), "io.kubernetes.container.name": container["name"]}
        config.MergeFromString(
            encode_message(_IMAGE, encode_text(1, container["image"]))
            + encode_text(_COMMAND, "/pause")
            + encode_text(_WORKING_FOLDER, "/")
            + b"".join(
                encode_message(_LABELS, encode_text(1, key) + encode_text(2, value)) for key, value in labels.items()
            )
        )
        return request

    def docker_name(self, container: str) -> str:
        """Of the container, or of the sandbox: ``POD``."""
        metadata = self.document["metadata"]
        return f"k8s_{container}_{metadata['name']}_{metadata['namespace']}_{self.uid}_0"

    def docker_sandbox(self) -> dict[str, Any]:
        """The body of the request to docker that creates the sandbox."""
        config = self.sandbox()
        annotations = {f"annotation.{key}": value for key, value in config.annotations.items()}
        labels = {**config.labels, **annotations, "io.kubernetes.docker.type": "podsandbox"}
        host = {"CgroupParent": self.parent, "CpuShares": 2, "OomScoreAdj": -998, "NetworkMode": "host"}
        return {"Image": "pause", "Labels": labels, "HostConfig": host}

    def docker_container(self, container: Mapping[str, Any], sandbox: str) -> dict[str, Any]:
        """The body of the request to docker that creates a container."""
        config = self.create(container, sandbox).config
        annotations = {f"annotation.{key}": value for key, value in config.annotations.items()}
        types = {"io.kubernetes.docker.type": "container", "io.kubernetes.sandbox.id": sandbox}
        given = config.linux.resources
        host = {
            "CgroupParent": self.parent,
            "CpuShares": given.cpu_shares,
            "CpuQuota": given.cpu_quota,
            "CpuPeriod": given.cpu_period,
            "Memory": given.memory_limit_in_bytes,
            "MemorySwap": given.memory_swap_limit_in_bytes,
            "OomScoreAdj": given.oom_score_adj,
            "Binds": ["/a:/b:ro"],
        }
        labels = {**self._names(), **annotations, **types, "io.kubernetes.container.name": container["name"]}
        return {"Image": container["image"], "Env": ["HOSTNAME=web", "A=b=c"], "Labels": labels, "HostConfig": host}

    def resizes(self) -> dict[str, LinuxContainerResources]:
        """What running containers are updated with: by name, what their status says has been allocated."""
        status = self.shape.status.get("containerStatuses", ()) if self.shape is not None else ()
        before = {
            each["name"]: each["resources"]["limits"]
            for each in self.containers()
            if "limits" in each.get("resources", {})
        }
        return {
            entry["name"]: _resources(
                [{"requests": entry["allocatedResources"], "limits": entry["allocatedResources"]}]
            )
            for entry in status
            if entry["allocatedResources"] != before[entry["name"]]
        }

    def _names(self) -> dict[str, str]:
        metadata = self.document["metadata"]
        return {
            "io.kubernetes.pod.name": metadata["name"],
            "io.kubernetes.pod.namespace": metadata["namespace"],
            "io.kubernetes.pod.uid": self.uid,
        }

    def _oom_score(self, container: Mapping[str, Any]) -> int:
        if self.qos_class == "Guaranteed":
            return -997
        if self.qos_class == "BestEffort":
            return 1000
        thousandths = _amount([container.get("resources", {})], "requests", "memory")
        return min(max(1000 - thousandths // _NODE_MEMORY, 3), 999)


def is_sidecar(container: Mapping[str, Any]) -> bool:
    return container.get("restartPolicy") == "Always"


def _init(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(spec.get("initContainers", ()))


def _resources(holders: list[Mapping[str, Any]]) -> LinuxContainerResources:
    """The sum. A limit that one of them lacks has none: 0."""
    is_limited = {name: all(name in each.get("limits", {}) for each in holders) for name in ("cpu", "memory")}
    milli = _amount(holders, "requests", "cpu")
    limit = _amount(holders, "limits", "cpu") if is_limited["cpu"] else 0
    memory = _amount(holders, "limits", "memory") // 1000 if is_limited["memory"] else 0
    return LinuxContainerResources(
        cpu_period=_PERIOD,
        cpu_quota=max(limit * _PERIOD // 1000, 1000) if limit else 0,
        cpu_shares=max(milli * 1024 // 1000, 2),
        memory_limit_in_bytes=memory,
        memory_swap_limit_in_bytes=memory,
        hugepage_limits=[HugepageLimit(page_size=size, limit=0) for size in ("2MB", "1GB")],
        unified={"memory.oom.group": "1"},
    )


def _amount(holders: list[Mapping[str, Any]], part: str, name: str) -> int:
    """In thousandths."""
    return sum(Quantity.parse(each.get(part, {}).get(name, "0")).milli for each in holders)
