"""The status of this node's NodeMetric, made of the metric cache; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from koordinator.api.host_application import HostApplicationSpec
from koordinator.api.meta import EXTENSIONS_MEMBER
from koordinator.api.nodemetric import AVERAGE, P50, P90, P95, P99, USAGE_WITH_HOT_PAGE_CACHE, USAGE_WITH_PAGE_CACHE
from koordinator.api.quantity import Format, Quantity
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordinator.api.timestamps import format_time
from koordinator.base.durations import format_duration
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.kinds import MetricKind
from koordinator.koordlet.observe.metric_cache.ring import RingMetricCache, Samples
from koordinator.koordlet.observe.prediction.forecast import MIN_PREDICTOR, Forecast
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.model.node_metric import COLD_SHARE, CollectPolicy, resource_map
from koordinator.node.nvml import GPU

Document = dict[str, Any]

_FIGURES: Final[Mapping[str, Callable[[Samples], float]]] = {
    AVERAGE: Samples.average,
    P50: lambda samples: samples.percentile(50),
    P90: lambda samples: samples.percentile(90),
    P95: lambda samples: samples.percentile(95),
    P99: lambda samples: samples.percentile(99),
}
"""What a report has of a window."""
_NODE_GPU: Final = (kinds.NODE_GPU_CORE_USAGE, kinds.NODE_GPU_MEMORY_USAGE)
_POD_GPU: Final = (kinds.POD_GPU_CORE_USAGE, kinds.POD_GPU_MEMORY_USAGE)


@dataclass(frozen=True, slots=True)
class NodeMetricInput:
    """What a report is made of, beside the metric cache."""

    policy: CollectPolicy
    pods: Sequence[NodePod] = ()
    host_applications: Sequence[HostApplicationSpec] = ()
    numa_nodes: Sequence[int] = ()
    gpus: Sequence[GPU] = ()
    has_cold_pages: bool = False
    """Whether the machine measures cold pages, so that the hot-page policy has something to go by."""
    forecast: Forecast = field(default_factory=Forecast)
    """What prod pods will leave unused, and what they will use at most, where that is known."""
    extensions: Sequence[Mapping[str, Mapping[str, Any]]] = ()
    """What several have to say of pods beside their usage: by uid of a pod, by a key of its own."""


class _MemoryKinds(NamedTuple):
    """Which kinds hold used memory under a policy."""

    node: MetricKind
    pod: MetricKind
    host_application: MetricKind


_WITHOUT_PAGE_CACHE: Final = _MemoryKinds(
    kinds.NODE_MEMORY_USAGE, kinds.POD_MEMORY_USAGE, kinds.HOST_APPLICATION_MEMORY_USAGE
)
_WITH_PAGE_CACHE: Final = _MemoryKinds(
    kinds.NODE_MEMORY_USAGE_WITH_PAGE_CACHE,
    kinds.POD_MEMORY_USAGE_WITH_PAGE_CACHE,
    kinds.HOST_APPLICATION_MEMORY_USAGE_WITH_PAGE_CACHE,
)
_WITH_HOT_PAGES: Final = _MemoryKinds(
    kinds.NODE_MEMORY_WITH_HOT_PAGE_USAGE,
    kinds.POD_MEMORY_WITH_HOT_PAGE_USAGE,
    kinds.HOST_APPLICATION_MEMORY_WITH_HOT_PAGE_USAGE,
)


def measured_pods(cache: RingMetricCache, given: NodeMetricInput, now: datetime) -> Sequence[NodePod]:
    """The pods that the report will have: those with samples of CPU and of memory."""
    memory = _memory_kinds(given).pod
    window = _Window(cache, given.policy.aggregate_seconds, now)
    return [pod for pod in given.pods if window.has_samples(pod, kinds.POD_CPU_USAGE, memory)]


def node_metric_status(cache: RingMetricCache, given: NodeMetricInput, now: datetime) -> Document:
    """The status to write. What has no samples in its window is ``{}``, or left out of its list."""
    memory = _memory_kinds(given)
    window = _Window(cache, given.policy.aggregate_seconds, now)
    node, system = (kinds.NODE_CPU_USAGE, memory.node), (kinds.SYS_CPU_USAGE, kinds.SYS_MEMORY_USAGE)
    info: Document = {
        "nodeUsage": _with_gpus(window.usage(*node), window, given.gpus, _NODE_GPU),
        "systemUsage": window.usage(*system),
    }
    if given.policy.durations is not None:
        windows = [(duration, _Window(cache, duration.total_seconds(), now)) for duration in given.policy.durations]
        info["aggregatedNodeUsages"] = [_aggregated(each, duration, node, given.gpus) for duration, each in windows]
        info["aggregatedSystemUsages"] = [_aggregated(each, duration, system) for duration, each in windows]
    if numa := _numa_usages(window, sorted(given.numa_nodes)):
        info["numaUsages"] = numa
    status: Document = {
        "updateTime": format_time(now),
        "nodeMetric": info,
        "podsMetric": _pods(window, given, memory.pod),
        "hostApplicationMetric": _host_applications(window, given.host_applications, memory.host_application),
        "prodReclaimableMetric": {"resource": {}},
    }
    if reclaimable := given.forecast.reclaimable.get(MIN_PREDICTOR):
        status["prodReclaimableMetric"] = {"resource": {"resources": reclaimable.quantities()}}
    if peak := given.forecast.peak.get(MIN_PREDICTOR):
        status["prodPeakMetric"] = {"resource": {"resources": peak.quantities()}}
    return status


def as_merge_patch(status: Document) -> Document:
    """The status as a merge patch that also takes back what an earlier report said and this one does not."""
    info = {
        name: {"resources": None, "devices": None} if value == {} else value
        for name, value in status["nodeMetric"].items()
    }
    if usage := status["nodeMetric"]["nodeUsage"]:
        info["nodeUsage"] = {"devices": None, **usage}
    absent: Document = {"aggregatedNodeUsages": None, "aggregatedSystemUsages": None, "numaUsages": None}
    reclaimable = status["prodReclaimableMetric"]
    if reclaimable == {"resource": {}}:
        reclaimable = {"resource": {"resources": None}}
    return {
        "status": {
            "prodPeakMetric": None,
            **status,
            "nodeMetric": absent | info,
            "prodReclaimableMetric": reclaimable,
        }
    }


class _Window:
    def __init__(self, cache: RingMetricCache, seconds: float, now: datetime) -> None:
        self._cache = cache
        self._end = round(now.timestamp() * 1000)
        self._start = self._end - round(seconds * 1000)

    def has_samples(self, pod: NodePod, *wanted: MetricKind) -> bool:
        return all(self._cache.select(kind, self._start, self._end, pod_uid=pod.uid) for kind in wanted)

    def samples(self, kind: MetricKind, **labels: str) -> Samples:
        return self._cache.select(kind, self._start, self._end, **labels)

    def usage(self, cpu: MetricKind, memory: MetricKind, **labels: str) -> Document:
        """Both amounts, or ``{}`` if one has no samples."""
        cores, size = self.samples(cpu, **labels), self.samples(memory, **labels)
        return resource_map(cores.average(), size.average()) if cores and size else {}


def _memory_kinds(given: NodeMetricInput) -> _MemoryKinds:
    if given.policy.memory == USAGE_WITH_PAGE_CACHE:
        return _WITH_PAGE_CACHE
    if given.policy.memory == USAGE_WITH_HOT_PAGE_CACHE and given.has_cold_pages:
        return _WITH_HOT_PAGES
    return _WITHOUT_PAGE_CACHE


def _aggregated(
    window: _Window, duration: timedelta, usage: tuple[MetricKind, MetricKind], gpus: Sequence[GPU] = ()
) -> Document:
    """The figures of a window; ``{}`` for all of them while samples cover less than half of it."""
    cpu, memory = (window.samples(kind) for kind in usage)
    is_warm = bool(cpu) and bool(memory) and cpu.duration() >= COLD_SHARE * duration.total_seconds()
    figures = {
        name: _with_gpus(resource_map(figure(cpu), figure(memory)), window, gpus, _NODE_GPU, figure) if is_warm else {}
        for name, figure in _FIGURES.items()
    }
    return {"usage": figures, "duration": format_duration(duration)}


def _with_gpus(
    usage: Document,
    window: _Window,
    gpus: Sequence[GPU],
    gpu_kinds: tuple[MetricKind, MetricKind],
    figure: Callable[[Samples], float] = Samples.average,
    **owner: str,
) -> Document:
    """A usage with what it has of each GPU; one without CPU and memory stays empty."""
    devices = []
    for gpu in gpus if usage else ():
        labels = {**owner, "gpu_minor": str(gpu.minor), "gpu_device_uuid": gpu.uuid}
        core, memory = (window.samples(kind, **labels) for kind in gpu_kinds)
        if core and memory:
            devices.append(_gpu_usage(gpu, figure(core), figure(memory)))
    return {**usage, "devices": devices} if devices else usage


def _gpu_usage(gpu: GPU, core: float, memory: float) -> Document:
    resources = {
        GPU_CORE: str(Quantity.from_value(int(core))),
        GPU_MEMORY: str(Quantity.from_value(int(memory), Format.BINARY_SI)),
    }
    if gpu.memory:
        resources[GPU_MEMORY_RATIO] = str(Quantity.from_value(int(100 * memory / gpu.memory)))
    # The original writes that every GPU is unhealthy here; the health is in the Device.
    return {"id": gpu.uuid, "minor": gpu.minor, "type": "gpu", "health": False, "resources": resources}


def _numa_usages(window: _Window, numbers: Sequence[int]) -> list[Document]:
    usages = []
    for number in numbers:
        label = {"numa_node_id": str(number)}
        node = window.usage(kinds.NODE_NUMA_CPU_USAGE, kinds.NODE_NUMA_MEMORY_USAGE, **label)
        if not node:
            continue
        system = window.usage(kinds.SYS_NUMA_CPU_USAGE, kinds.SYS_NUMA_MEMORY_USAGE, **label)
        usages.append({"numaNodeID": number, "nodeUsage": node, "systemUsage": system})
    return usages


def _pods(window: _Window, given: NodeMetricInput, memory: MetricKind) -> list[Document]:
    """By namespace and name. Pods without samples are left out: nothing is known of them yet, or they have ended."""
    reports = []
    for node_pod in sorted(given.pods, key=lambda pod: (pod.pod.metadata.namespace, pod.pod.metadata.name)):
        usage = window.usage(kinds.POD_CPU_USAGE, memory, pod_uid=node_pod.uid)
        if not usage:
            continue
        pod = node_pod.pod
        report = {
            "name": pod.metadata.name,
            "namespace": pod.metadata.namespace,
            "podUsage": _with_gpus(usage, window, given.gpus, _POD_GPU, pod_uid=node_pod.uid),
            "priority": node_pod.priority_class.value,
            "qos": node_pod.qos_with_default.value,
        }
        if extensions := {key: said for part in given.extensions for key, said in part.get(node_pod.uid, {}).items()}:
            report["extensions"] = {EXTENSIONS_MEMBER: extensions}
        reports.append(report)
    return reports


def _host_applications(
    window: _Window, applications: Sequence[HostApplicationSpec], memory: MetricKind
) -> list[Document]:
    reports = []
    for application in sorted(applications, key=lambda application: application.name):
        usage = window.usage(kinds.HOST_APPLICATION_CPU_USAGE, memory, host_app_name=application.name)
        if usage:
            reports.append(
                {"name": application.name, "usage": usage, "priority": application.priority, "qos": application.qos}
            )
    return reports
