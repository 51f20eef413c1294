"""FragmentationAware: a node whose resources are requested unevenly loses the pod that evens them most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Self

import msgspec

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.resource_names import CPU, MEMORY, PODS
from koordinator.base.errors import ConfigurationError
from koordinator.descheduler.framework import Eviction, Plan, Remark, Snapshot
from koordinator.descheduler.node_fit import TargetNodes
from koordinator.descheduler.plugins.selection import SelectiveArguments, SelectivePlugin
from koordinator.descheduler.pod_facts import is_leaving
from koordinator.descheduler.requests import amount, requests_of


class FragmentationAwareArgs(SelectiveArguments):
    dry_run: bool = False
    node_fit: bool = True
    resources: list[str] = msgspec.field(default_factory=lambda: [CPU, MEMORY])
    imbalance_threshold: float = 0.15
    """Standard deviation of the requested shares, above which a node loses a pod."""
    min_improvement_threshold: float = 0.02

    def completed(self, path: str) -> Self:
        super().completed(path)
        if not self.resources or len(set(self.resources)) < len(self.resources):
            raise ConfigurationError(f"{path}.resources", self.resources, "resources, each of them once")
        for field, value in (
            ("imbalanceThreshold", self.imbalance_threshold),
            ("minImprovementThreshold", self.min_improvement_threshold),
        ):
            if not value >= 0:
                raise ConfigurationError(f"{path}.{field}", value, "must be greater than or equal to 0")
        return self


class FragmentationAware(SelectivePlugin):
    name = "FragmentationAware"
    args_type = FragmentationAwareArgs

    args: FragmentationAwareArgs

    def _balance(self, snapshot: Snapshot) -> Plan:
        nodes = self._selected(snapshot.nodes)
        targets = TargetNodes(snapshot, nodes) if self.args.node_fit else None
        for node in nodes:
            pods = [pod for pod in snapshot.pods_on(node.metadata.name) if not is_leaving(pod, snapshot.now)]
            requested = _requested(pods, self.args.resources)
            before = _imbalance(node, requested, self.args.resources)
            if before <= self.args.imbalance_threshold:
                continue
            best = self._best(node, pods, requested, before, targets)
            if best is None:
                yield Remark(f"node {node.metadata.name} is uneven ({before:.4f}), and no pod would make it better")
                continue
            pod, gain = best
            refusals = self.handle.evictor.pre_eviction_filter(pod)
            if refusals:
                yield Remark(f"pod {pod.metadata.key} stays: {'; '.join(refusals)}")
                continue
            reason = f"fragmentation reduction: stdBefore={before:.4f} stdAfter={before - gain:.4f} gain={gain:.4f}"
            taken = yield Eviction(pod, reason, dry_run=self.args.dry_run)
            if taken and targets is not None:
                targets.book(pod, int(targets.fitting(pod).argmax()))

    def _best(
        self, node: Node, pods: Sequence[Pod], requested: Mapping[str, int], before: float, targets: TargetNodes | None
    ) -> tuple[Pod, float] | None:
        """The pod whose removal gains most, and how much; of equals, the first."""
        best: tuple[Pod, float] | None = None
        for pod in pods:
            if not self._allows(pod) or (targets is not None and not targets.fitting(pod).any()):
                continue
            own = _requested([pod], self.args.resources)
            after = _imbalance(node, {name: requested[name] - own[name] for name in requested}, self.args.resources)
            gain = before - after
            if gain > self.args.min_improvement_threshold and (best is None or gain > best[1]):
                best = pod, gain
        return best


def _requested(pods: Sequence[Pod], resources: Sequence[str]) -> dict[str, int]:
    total = dict.fromkeys(resources, 0)
    for pod in pods:
        requests = requests_of(pod)
        for name in resources:
            total[name] += 1 if name == PODS else requests.get(name, 0)
    return total


def _imbalance(node: Node, requested: Mapping[str, int], resources: Sequence[str]) -> float:
    """The population standard deviation of the requested shares; resources that the node does not have are left out."""
    allocatable = node.status.allocatable
    shares = [requested[name] / amount(name, allocatable[name]) for name in resources if allocatable.get(name)]
    if not shares:
        return 0.0
    mean = sum(shares) / len(shares)
    return sqrt(sum((share - mean) ** 2 for share in shares) / len(shares))
