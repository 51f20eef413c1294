"""CustomPriority: pods leave expensive classes of nodes for cheaper ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

from koordinator.api.component_configuration import Strict
from koordinator.api.meta import LabelSelector
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.configuration.arguments import checked_selector
from koordinator.descheduler.framework import Cordon, Eviction, Handle, Plan, Remark, Snapshot
from koordinator.descheduler.node_fit import TargetNodes
from koordinator.descheduler.plugins.selection import SelectiveArguments, SelectivePlugin
from koordinator.descheduler.requests import requests_of
from koordinator.model.label_selector import CompiledSelector

BEST_EFFORT: Final = "BestEffort"
DRAIN_NODE: Final = "DrainNode"
_MISFITS: Final = 5
"""In a row, after which the rest of a node's pods, which request more, are not considered."""


class ResourcePriority(Strict):
    name: str = ""
    node_selector: LabelSelector | None = None
    keep_threshold: float | None = None
    reject_threshold: float | None = None
    """Both are read and have no effect, as in the original."""


class CustomPriorityArgs(SelectiveArguments):
    dry_run: bool = False
    node_fit: bool = True
    eviction_order: list[ResourcePriority] = []
    """From expensive to cheap."""
    mode: str = BEST_EFFORT
    auto_cordon: bool = False

    def completed(self, path: str) -> Self:
        super().completed(path)
        if self.mode not in (BEST_EFFORT, DRAIN_NODE):
            raise ConfigurationError(f"{path}.mode", self.mode, f"{BEST_EFFORT} or {DRAIN_NODE}")
        order = f"{path}.evictionOrder"
        if len(self.eviction_order) < 2:
            text = "CustomPriority requires at least 2 resource priority levels"
            raise ConfigurationError(order, len(self.eviction_order), text)
        seen: set[str] = set()
        for index, level in enumerate(self.eviction_order):
            where = f"{order}[{index}]"
            if not level.name:
                raise ConfigurationError(f"{where}.name", level.name, "priority name cannot be empty")
            if level.name in seen:
                raise ConfigurationError(f"{where}.name", level.name, f"duplicate priority name: {level.name}")
            seen.add(level.name)
            if level.node_selector is None:
                text = f"priority {level.name} must have a nodeSelector"
                raise ConfigurationError(f"{where}.nodeSelector", None, text)
            checked_selector(level.node_selector, f"{where}.nodeSelector")
        return self


class CustomPriority(SelectivePlugin):
    name = "CustomPriority"
    args_type = CustomPriorityArgs

    def __init__(self, args: CustomPriorityArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._levels: list[tuple[str, CompiledSelector | None]] = [
            (level.name, checked_selector(level.node_selector, "nodeSelector")) for level in args.eviction_order
        ]

    def _balance(self, snapshot: Snapshot) -> Plan:
        levels = self._populated(snapshot.nodes)
        if len(levels) < 2:
            yield Remark("CustomPriority requires at least 2 priority levels with nodes")
            return
        for index, (name, sources) in enumerate(levels[:-1]):
            targets = TargetNodes(snapshot, [node for _, nodes in levels[index + 1 :] for node in nodes])
            for source in sources:
                pods = [pod for pod in snapshot.pods_on(source.metadata.name) if self._allows(pod)]
                pods.sort(key=_by_size)
                if self.args.mode == DRAIN_NODE:
                    yield from self._drain(name, source, pods, targets)
                else:
                    yield from self._evict(name, pods, targets)

    def _populated(self, nodes: Sequence[Node]) -> list[tuple[str, list[Node]]]:
        """The levels that have nodes; each node is of the first level that selects it."""
        found: dict[str, list[Node]] = {name: [] for name, _ in self._levels}
        for node in self._selected(nodes):
            for name, selector in self._levels:
                if selector is not None and selector.matches(node.metadata.labels):
                    found[name].append(node)
                    break
        return [(name, members) for name, members in found.items() if members]

    def _evict(self, level: str, pods: Sequence[Pod], targets: TargetNodes) -> Plan:
        """Every pod that fits somewhere, the smallest first."""
        misfits = 0
        reason = f"evicting from {level} priority resource to lower priority resource"
        for pod in pods:
            place = _place(pod, targets) if self.args.node_fit else None
            if self.args.node_fit and place is None:
                misfits += 1
                if misfits >= _MISFITS:
                    return
                continue
            misfits = 0
            taken = yield Eviction(pod, reason, dry_run=self.args.dry_run)
            if taken and place is not None:
                targets.book(pod, place)

    def _drain(self, level: str, source: Node, pods: Sequence[Pod], targets: TargetNodes) -> Plan:
        """All pods, if all of them fit at once; else none."""
        booked: list[tuple[Pod, int]] = []
        for pod in pods:
            place = _place(pod, targets, resources_only=not self.args.node_fit)
            if place is None:
                yield Remark(f"node {source.metadata.name} is not drained: pod {pod.metadata.key} fits nowhere")
                for earlier, index in booked:
                    targets.unbook(earlier, index)
                return
            targets.book(pod, place)
            booked.append((pod, place))
        if not booked:
            return
        name = source.metadata.name
        reason = f"drain node {name} (sourcePriority={level})"
        cordons = self.args.auto_cordon and not self.args.dry_run and not source.spec.unschedulable
        if cordons and not (yield Cordon(name, True, reason)):
            return
        for pod in pods:
            if not (yield Eviction(pod, reason, dry_run=self.args.dry_run)):
                if cordons:
                    yield Cordon(name, False, f"pod {pod.metadata.key} was not evicted")
                return


def _place(pod: Pod, targets: TargetNodes, *, resources_only: bool = False) -> int | None:
    fits = targets.with_free_capacity(pod) if resources_only else targets.fitting(pod)
    first = int(fits.argmax()) if len(fits) else 0
    return first if len(fits) and fits[first] else None


def _by_size(pod: Pod) -> tuple[int, int, str, str]:
    requests = requests_of(pod)
    return requests.get(CPU, 0), requests.get(MEMORY, 0), pod.metadata.namespace, pod.metadata.name
