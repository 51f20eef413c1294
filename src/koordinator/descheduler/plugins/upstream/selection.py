"""What upstream's strategies have in common: which pods they look at, and how their arguments are checked."""

from __future__ import annotations

from typing import Self

from koordinator.api.meta import LabelSelector
from koordinator.api.pod import Pod
from koordinator.descheduler.configuration.arguments import Arguments, Namespaces, check_namespaces, checked_selector
from koordinator.descheduler.framework import Evictor


class StrategyArguments(Arguments):
    """Namespaces and labels restrict which pods a strategy may evict."""

    lenient = True

    namespaces: Namespaces | None = None
    label_selector: LabelSelector | None = None

    def completed(self, path: str) -> Self:
        check_namespaces(self.namespaces, f"{path}.namespaces")
        checked_selector(self.label_selector, f"{path}.labelSelector")
        return self


class Candidates:
    """The pods that a strategy may evict."""

    def __init__(self, args: StrategyArguments) -> None:
        self._namespaces = args.namespaces or Namespaces()
        self._selector = checked_selector(args.label_selector, "labelSelector")

    def selects(self, pod: Pod) -> bool:
        """By the arguments alone."""
        if not self._namespaces.allow(pod.metadata.namespace):
            return False
        return self._selector is None or self._selector.matches(pod.metadata.labels)

    def allows(self, pod: Pod, evictor: Evictor) -> bool:
        """By the arguments and by both filters of the evictor."""
        return self.selects(pod) and not evictor.filter(pod) and not evictor.pre_eviction_filter(pod)
