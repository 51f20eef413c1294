"""What plugins have in common: which nodes and pods they look at, by their arguments, and how these are checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from koordinator.api.meta import LabelSelector
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.descheduler.configuration.arguments import (
    Arguments,
    Namespaces,
    PodSelection,
    PodSelector,
    check_namespaces,
    checked_selector,
)
from koordinator.descheduler.framework import BalancePlugin, Handle, Plan, Plugin, Remark, Snapshot


class SelectiveArguments(Arguments):
    """Of Koordinator's own plugins."""

    paused: bool = False
    node_selector: LabelSelector | None = None
    evictable_namespaces: Namespaces | None = None
    pod_selectors: list[PodSelector] = []

    def completed(self, path: str) -> Self:
        checked_selector(self.node_selector, f"{path}.nodeSelector")
        PodSelection(self.evictable_namespaces, self.pod_selectors, path)
        return self


class SelectivePlugin(BalancePlugin):
    """One of Koordinator's own."""

    args: Any

    def __init__(self, args: SelectiveArguments, handle: Handle) -> None:
        super().__init__(args, handle)
        self._nodes = checked_selector(args.node_selector, "nodeSelector")
        self._selection = PodSelection(args.evictable_namespaces, args.pod_selectors, self.name)

    def balance(self, snapshot: Snapshot) -> Plan:
        if self.args.paused:
            yield Remark(f"{self.name} is paused and will do nothing.")
        else:
            yield from self._balance(snapshot)

    def _balance(self, snapshot: Snapshot) -> Plan:
        raise NotImplementedError

    def _selected(self, nodes: Sequence[Node]) -> Sequence[Node]:
        return [node for node in nodes if self._nodes is None or self._nodes.matches(node.metadata.labels)]

    def _allows(self, pod: Pod) -> bool:
        return self._selection.matches(pod) and not self.handle.evictor.filter(pod)


class StrategyArguments(Arguments):
    """Of upstream's strategies: namespaces and labels restrict which pods they may evict."""

    lenient = True

    namespaces: Namespaces | None = None
    label_selector: LabelSelector | None = None

    def completed(self, path: str) -> Self:
        check_namespaces(self.namespaces, f"{path}.namespaces")
        checked_selector(self.label_selector, f"{path}.labelSelector")
        return self


class Strategy(Plugin):
    """One of upstream's."""

    def __init__(self, args: StrategyArguments, handle: Handle) -> None:
        super().__init__(args, handle)
        self._namespaces = args.namespaces or Namespaces()
        self._selector = checked_selector(args.label_selector, "labelSelector")

    def _selects(self, pod: Pod) -> bool:
        """Whether the strategy may evict the pod by its arguments alone."""
        if not self._namespaces.allow(pod.metadata.namespace):
            return False
        return self._selector is None or self._selector.matches(pod.metadata.labels)

    def _allows(self, pod: Pod) -> bool:
        """The same by its arguments and by both filters of the evictor."""
        evictor = self.handle.evictor
        return self._selects(pod) and not evictor.filter(pod) and not evictor.pre_eviction_filter(pod)
