"""Memory QoS: how much of a pod's memory is protected, throttled and reclaimed early, and who is killed first.

The class of a pod comes from the NodeSLO, and its annotation goes before that (pkg/koordlet/qosmanager/plugins/
cgreconcile). A field that is not set is not written. What is protected of a QoS class of Kubernetes is the sum over its
pods, since a child is protected no further than its parents are.

A kubelet with its gate MemoryQoS has values of its own in memory.high, memory.min and memory.low. There koordlet writes
what it is told to throttle or to protect, never less for a QoS class than the kubelet has summed up, and puts the
kubelet's value back where it has nothing to say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.pod import ResourceList
from koordinator.api.qos import KubernetesQoS, QoSClass
from koordinator.api.resource_names import BATCH_MEMORY, BEST_EFFORT_MEMORIES, MEMORY
from koordinator.api.resource_qos import MemoryQoS, ResourceQoSStrategy
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.strategies.qos_classes import CLASS_NAMES, qos_classes
from koordinator.koordlet.enforce.strategies.snapshot import Decision, Snapshot, annotation_or_none, overlaid
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.model.slo_configuration.field_ranges import range_errors
from koordinator.model.slo_configuration.quality_of_service_defaults import NEUTRAL_MEMORY_QOS, RECOMMENDED_MEMORY_QOS
from koordinator.node import kernel_files as files
from koordinator.node.cgroup_layout import CgroupLayout
from koordinator.node.kernel_files import KernelFile, Target

OWNER: Final = "CgroupReconcile"
_CLASSES: Final = {KubernetesQoS.GUARANTEED: "LSR", KubernetesQoS.BURSTABLE: "LS", KubernetesQoS.BEST_EFFORT: "BE"}
"""Of the NodeSLO, by whose folder gets what they say of killing."""
FILES: Final = (
    files.MEMORY_MIN,
    files.MEMORY_LOW,
    files.MEMORY_HIGH,
    files.MEMORY_WATERMARK_RATIO,
    files.MEMORY_WATERMARK_SCALE,
    files.MEMORY_WATERMARK_MIN_ADJUSTMENT,
    files.MEMORY_USE_PRIORITY_OOM,
    files.MEMORY_PRIORITY,
    files.MEMORY_OOM_GROUP,
    files.PAGE_CACHE_SIZE,
    files.PAGE_CACHE_SYNC,
    files.PAGE_CACHE_ENABLE,
)
"""All that are written. Some are of certain kernels alone, and version 1 of cgroups has few of them elsewhere."""
_Values = tuple[tuple[KernelFile, int | None], ...]
"""None: nothing is written to that file."""


class _PodMemoryQoS(MemoryQoS):
    """The pod's annotation."""

    policy: str = ""


def decide(
    snapshot: Snapshot,
    layout: CgroupLayout,
    of_kubelet: Mapping[Target, int] | None = None,
    absent: tuple[KernelFile, ...] = (),
) -> Decision:
    """The memory files of QoS classes, pods and containers, without those that are ``absent`` from the kernel.
    ``of_kubelet`` is what ``targets_of_kubelet`` had before koordlet changed them, of QoS classes also of those that it
    has not changed; None where the kubelet gives none."""
    strategy = snapshot.resource_qos
    allocatable = snapshot.node.status.allocatable.get(MEMORY) if snapshot.node is not None else None
    if strategy is None or allocatable is None:
        return Decision(None, "the NodeSLO or the Node is not known")
    settings: list[DesiredSetting] = []
    protected: dict[str, dict[KernelFile, int]] = {}
    for usage in snapshot.pods:
        of_pod, protection = usage.pod.derived(_of_pod, strategy, allocatable.value, absent)
        settings += of_pod
        sums = protected.setdefault(usage.pod.kubernetes_qos, {})
        for file, amount in protection:
            sums[file] = sums.get(file, 0) + amount
    settings += [each for each in _class_settings(strategy, layout, protected) if each.target.file not in absent]
    if of_kubelet is not None:
        classes = {layout.qos(each) for each in KubernetesQoS}
        settings = [found for setting in settings for found in _beside_kubelet(setting, of_kubelet, classes)]
    reason = "the NodeSLO's memoryQOS and the pods' annotations"
    if missing := [file.key for file in FILES if file in absent]:
        reason += f"; this kernel has no {', '.join(missing)}"
    return Decision(tuple(settings), reason)


def targets_of_kubelet(snapshot: Snapshot, layout: CgroupLayout) -> tuple[list[Target], list[Target]]:
    """Of QoS classes, and of pods and containers: the files that a kubelet with the gate MemoryQoS writes, too."""
    pods = [usage.pod for usage in snapshot.pods]
    folders = [folder for pod in pods for folder in (pod.cgroup, *(each.cgroup for each in pod.running))]
    classes = dict.fromkeys(layout.qos(each) for each in KubernetesQoS)
    return (
        [Target(file, folder) for folder in classes for file in (files.MEMORY_MIN, files.MEMORY_LOW)],
        [
            Target(file, folder)
            for folder in folders
            for file in (files.MEMORY_MIN, files.MEMORY_LOW, files.MEMORY_HIGH)
        ],
    )


def _beside_kubelet(
    setting: DesiredSetting, of_kubelet: Mapping[Target, int], classes: Collection[str]
) -> Iterator[DesiredSetting]:
    if setting.target.file not in files.KEPT_FILES:
        yield setting
        return
    given = of_kubelet.get(setting.target)
    if setting.value == (files.UNLIMITED if setting.target.file is files.MEMORY_HIGH else 0):
        if given is not None:
            reason = f"{setting.reason}: what the kubelet has given, by its gate MemoryQoS"
            yield replace(setting, value=given, reason=reason, priority=Priority.RELEASE)
    elif setting.target.folder in classes and given is not None and isinstance(setting.value, int):
        yield replace(setting, value=max(setting.value, given))
    else:
        yield setting


def _of_pod(
    pod: NodePod, strategy: ResourceQoSStrategy, allocatable: int, absent: tuple[KernelFile, ...]
) -> tuple[tuple[DesiredSetting, ...], tuple[tuple[KernelFile, int], ...]]:
    """The settings of a pod and of its containers, and what it adds to what its QoS class protects."""
    config, priority = _config(pod, strategy)
    if config is None or not pod.is_active:
        return (), ()
    protection = tuple(_protection(config, _request(pod)))
    settings = _pod_settings(pod, config, protection, priority, allocatable)
    return tuple(each for each in settings if each.target.file not in absent), protection


def _config(pod: NodePod, strategy: ResourceQoSStrategy) -> tuple[MemoryQoS | None, Priority]:
    """Those of the pod's class, or of its annotation's policy, with the annotation's fields before them."""
    qos = pod.qos_with_default
    class_ = strategy.system_class if qos is QoSClass.SYSTEM else qos_classes(strategy).get(CLASS_NAMES.get(qos, ""))
    base: MemoryQoS | None = class_.memory_qos if class_ is not None else None
    given = annotation_or_none(pod.pod.metadata.annotations, annotation_keys.MEMORY_QOS, _PodMemoryQoS)
    # The sums of the classes above are made of these numbers: one pod must not spoil them for others.
    if given is None or range_errors(given, given, ""):
        return base, Priority.POLICY
    if given.policy == "none":
        return NEUTRAL_MEMORY_QOS, Priority.POD
    if given.policy == "auto":
        base = RECOMMENDED_MEMORY_QOS.get(QoSClass.LSR if qos is QoSClass.LSE else qos)
    return overlaid(base or MemoryQoS(), given), Priority.POD


def _request(pod: NodePod) -> int:
    """Bytes that a pod requests; a best-effort pod requests batch memory. Free memory is protected for nobody."""
    if pod.qos is QoSClass.BE:
        return pod.containers_request.get(BATCH_MEMORY, 0)
    return pod.requests.get(MEMORY, 0) // 10**9


def _limit(pod: NodePod) -> int:
    """Bytes; 0 for no limit."""
    names = _limited_by(pod)
    limits = [_amount(each.resources.limits, *names) for each in pod.pod.spec.containers]
    if not all(limits):
        return 0
    return pod.limits.get(MEMORY, 0) // 10**9 if MEMORY in names else sum(limits)


def _limited_by(pod: NodePod) -> tuple[str, ...]:
    """The names under which the containers of a pod have a limit of memory: the first also has what they request that
    is protected."""
    return BEST_EFFORT_MEMORIES if pod.qos is QoSClass.BE else (MEMORY,)


def _amount(amounts: ResourceList, *names: str) -> int:
    return sum([max(amounts[name].value, 0) for name in names if name in amounts])


def _protection(config: MemoryQoS, requested: int) -> Iterator[tuple[KernelFile, int]]:
    least = None
    if config.min_limit_percent is not None:
        least = requested * config.min_limit_percent // 100
        yield files.MEMORY_MIN, least
    if config.low_limit_percent is not None:
        low = requested * config.low_limit_percent // 100
        yield files.MEMORY_LOW, max(low, least or 0) if low > 0 else low


def _pod_settings(
    pod: NodePod, config: MemoryQoS, protection: _Values, priority: Priority, allocatable: int
) -> Iterator[DesiredSetting]:
    reason = "the pod's annotation memoryQOS" if priority is Priority.POD else f"memoryQOS of {pod.qos_with_default}"
    yield from _desired(
        pod.cgroup, (*protection, *_page_cache(config, _limit(pod)), *_settings(config)), reason, priority
    )
    names = _limited_by(pod)
    specs = {container.name: container.resources for container in pod.pod.spec.containers}
    for container in pod.running:
        if (spec := specs.get(container.name)) is None:
            continue
        requested, limit = _amount(spec.requests, names[0]), _amount(spec.limits, *names)
        high = files.MEMORY_HIGH, _high(config, requested, limit or allocatable)
        yield from _desired(
            container.cgroup, (*_protection(config, requested), *_settings(config), high), reason, priority
        )


def _desired(
    folder: str, values: Iterable[tuple[KernelFile, int | None]], reason: str, priority: Priority = Priority.POLICY
) -> Iterator[DesiredSetting]:
    for file, value in values:
        if value is not None:
            yield DesiredSetting(OWNER, Target(file, folder), value, reason, priority)


def _high(config: MemoryQoS, requested: int, limit: int) -> int | None:
    if config.throttling_percent is None:
        return None
    if config.throttling_percent == 0:
        return files.UNLIMITED
    high = requested + (limit - requested) * config.throttling_percent // 100
    return max(high, requested * (config.min_limit_percent or 0) // 100)


def _settings(config: MemoryQoS) -> _Values:
    return (
        (files.MEMORY_WATERMARK_RATIO, config.wmark_ratio),
        (files.MEMORY_WATERMARK_SCALE, config.wmark_scale_permill),
        (files.MEMORY_WATERMARK_MIN_ADJUSTMENT, config.wmark_min_adj),
        *_killing(config),
    )


def _killing(config: MemoryQoS) -> _Values:
    return (
        (files.MEMORY_USE_PRIORITY_OOM, config.priority_enable),
        (files.MEMORY_PRIORITY, config.priority),
        (files.MEMORY_OOM_GROUP, config.oom_kill_group),
    )


def _page_cache(config: MemoryQoS, limit: int) -> _Values:
    size = config.page_cache_limit_size
    if size is None and config.page_cache_limit_percent is not None and limit:
        size = limit * config.page_cache_limit_percent // 100
    if size is None:
        return () if config.page_cache_enable is None else ((files.PAGE_CACHE_ENABLE, int(config.page_cache_enable)),)
    # The kernel takes no more than the limit of all memory.
    size = min(size, limit) if limit else size
    enabled = size > 0 if config.page_cache_enable is None else config.page_cache_enable
    return (
        (files.PAGE_CACHE_SIZE, size),
        (files.PAGE_CACHE_SYNC, int(bool(config.page_cache_reclaim_sync)) if size else None),
        (files.PAGE_CACHE_ENABLE, int(enabled)),
    )


def _class_settings(
    strategy: ResourceQoSStrategy, layout: CgroupLayout, protected: Mapping[str, Mapping[KernelFile, int]]
) -> Iterator[DesiredSetting]:
    # The folder of Guaranteed pods is the one of all pods, so that what it protects is the sum of all classes.
    total: dict[KernelFile, int] = {}
    for sums in protected.values():
        for file, amount in sums.items():
            total[file] = total.get(file, 0) + amount
    classes = qos_classes(strategy)
    for kubernetes_class, name in _CLASSES.items():
        found = total if kubernetes_class is KubernetesQoS.GUARANTEED else protected.get(kubernetes_class, {})
        folder = layout.qos(kubernetes_class)
        yield from _desired(folder, found.items(), "the sum over its pods")
        if (config := classes[name].memory_qos) is not None:
            yield from _desired(folder, _killing(config), f"memoryQOS of {kubernetes_class}")
