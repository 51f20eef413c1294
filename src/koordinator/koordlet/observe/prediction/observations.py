"""What the models learn of one training interval: one pair of usages for each thing that has a model; pure.

The names of models are the original's, since they are the names of checkpoint files, too: a pod's is its UID.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from koordinator.api.priority import PriorityClass
from koordinator.koordlet.observe.metric_cache import kinds
from koordinator.koordlet.observe.metric_cache.ring import RingMetricCache, Samples
from koordinator.koordlet.pods.node_pod import NodePod

NODE_MODEL: Final = "__node__"
_PERCENT: Final = 90
"""Of the samples of an interval; a single spike of a second is no peak."""


def node_item_model(item: str) -> str:
    """The name of the model of a part of the node: of the pods of a priority class, or of the system."""
    return f"__node-{item}__"


SYSTEM_MODEL: Final = node_item_model("sys")
NODE_MODELS: Final = frozenset({NODE_MODEL, SYSTEM_MODEL, *(node_item_model(item.value) for item in PriorityClass)})
"""All models but those of pods."""


@dataclass(frozen=True, slots=True)
class Usage:
    """``cpu`` in cores, ``memory`` in bytes without page cache."""

    cpu: float
    memory: float

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.cpu + other.cpu, self.memory + other.memory)


_NOTHING: Final = Usage(0.0, 0.0)


def observe(cache: RingMetricCache, pods: Sequence[NodePod], start: int, end: int) -> dict[str, Usage]:
    """Usages by model, of the samples from ``start`` to ``end`` (ms).

    A thing without samples is absent: nothing is known of it. A priority class without any pod uses nothing; one of
    whose pods none has samples is absent, as just after a restart, when the usage of 0 would be made up.
    """
    learned: dict[str, Usage] = {}
    classes: dict[PriorityClass, Usage | None] = {}
    all_pods = _NOTHING
    for pod in pods:
        usage = _usage(
            cache.select(kinds.POD_CPU_USAGE, start, end, pod_uid=pod.uid),
            cache.select(kinds.POD_MEMORY_USAGE, start, end, pod_uid=pod.uid),
        )
        if usage is None:
            classes.setdefault(pod.priority_class, None)
            continue
        learned[pod.uid] = usage
        classes[pod.priority_class] = (classes.get(pod.priority_class) or _NOTHING) + usage
        all_pods += usage
    for item in PriorityClass:
        of_class = classes.get(item, _NOTHING)
        if of_class is not None:
            learned[node_item_model(item.value)] = of_class
    node = _usage(cache.select(kinds.NODE_CPU_USAGE, start, end), cache.select(kinds.NODE_MEMORY_USAGE, start, end))
    if node is not None:
        learned[NODE_MODEL] = node
        learned[SYSTEM_MODEL] = Usage(max(node.cpu - all_pods.cpu, 0.0), max(node.memory - all_pods.memory, 0.0))
    return learned


def _usage(cpu: Samples, memory: Samples) -> Usage | None:
    return Usage(cpu.percentile(_PERCENT), memory.percentile(_PERCENT)) if cpu and memory else None
