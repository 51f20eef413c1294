"""What the node and its pods use of NVIDIA GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.kinds import MetricKind, Series
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.errors import FileError
from koordinator.node.nvml import GPU, NVML, GPUProcess

_OF_NODE: Final = (kinds.NODE_GPU_CORE_USAGE, kinds.NODE_GPU_MEMORY_USAGE)
_OF_POD: Final = (kinds.POD_GPU_CORE_USAGE, kinds.POD_GPU_MEMORY_USAGE)


@dataclass(slots=True)
class GPUUsage:
    """Samples of the node, which has one of each GPU that can be measured, and of pods, which have one of those that
    they use."""

    node: dict[Series, float] = field(default_factory=dict)
    pods: dict[Series, float] = field(default_factory=dict)


class GPUCollector:
    """Finds out whose a process is by the cgroup that it is in. Cgroups are looked into only while GPUs are in use."""

    def __init__(self, nvml: NVML, reader: CgroupReader) -> None:
        self._nvml = nvml
        self._reader = reader

    def collect(self, pods: Iterable[NodePod]) -> GPUUsage:
        """One round. A container that has ended is left out."""
        result = GPUUsage()
        by_process: defaultdict[int, list[GPUProcess]] = defaultdict(list)
        for gpu, processes in self._nvml.processes().items():
            _add(result.node, _OF_NODE, {}, gpu, processes)
            for process in processes:
                by_process[process.pid].append(process)
        for pod in pods if by_process else ():
            self._pod(result, pod, by_process)
        return result

    def _pod(self, result: GPUUsage, pod: NodePod, by_process: Mapping[int, list[GPUProcess]]) -> None:
        used: list[GPUProcess] = []
        for container in pod.containers:
            with suppress(FileError):
                pids = self._reader.processes(container.cgroup)
                used += [process for pid in pids for process in by_process.get(pid, ())]
        for gpu in {process.gpu for process in used}:
            on_it = [process for process in used if process.gpu == gpu]
            _add(result.pods, _OF_POD, {"pod_uid": pod.uid}, gpu, on_it)


def _add(
    samples: dict[Series, float],
    of: tuple[MetricKind, MetricKind],
    owner: Mapping[str, str],
    gpu: GPU,
    processes: Sequence[GPUProcess],
) -> None:
    core, memory = (kind.series(**owner, gpu_minor=str(gpu.minor), gpu_device_uuid=gpu.uuid) for kind in of)
    samples[core] = sum(process.core_percent for process in processes)
    samples[memory] = sum(process.memory for process in processes)
