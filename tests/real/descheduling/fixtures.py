"""Generated fixtures: nodes, pods, reports, budgets, and a profile of the descheduler that looks at nothing else.

Many of them live in one cluster and are looked at in one cycle, each by its own profile, so that hundreds take minutes.
Usages and priorities are all different within a fixture: what the original leaves to the order of a hash map would make
a comparison a matter of chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from tests.real.descheduling.cluster import Budget, NodeCase, PodCase

_LABEL: Final = "fixture"
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_EVICTION_COST: Final = "scheduling.koordinator.sh/eviction-cost"
_RAW_ALLOCATABLE: Final = "node.koordinator.sh/raw-allocatable"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_OF_NODE_POOLS: Final = (
    *("useDeviationThresholds", "lowThresholds", "highThresholds", "prodLowThresholds", "prodHighThresholds"),
    *("resourceWeights", "anomalyCondition"),
)
_PRIORITIES: Final = (3500, 5500, 7500, 9500)
"""One of each class: free, batch, mid, prod."""


@dataclass(frozen=True, slots=True)
class Fixture:
    name: str
    plugin: str
    point: str
    arguments: Mapping[str, Any]
    nodes: Sequence[NodeCase]
    pods: Sequence[PodCase]
    budgets: Sequence[Budget] = ()
    evictor: Mapping[str, Any] = field(default_factory=dict)

    def profile(self) -> dict[str, Any]:
        """One that evicts directly, from the nodes of this fixture alone."""
        default = {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]}
        arguments = {self.plugin: self.arguments, "DefaultEvictor": self.evictor}
        return {
            "name": self.name,
            "nodeSelector": {"matchLabels": {_LABEL: self.name}},
            "plugins": {"evict": default, "filter": default, self.point: {"enabled": [{"name": self.plugin}]}},
            "pluginConfig": [
                {"name": name, "args": {"apiVersion": "descheduler/v1alpha2", "kind": f"{name}Args", **given}}
                for name, given in arguments.items()
            ],
        }

    def node_pool(self) -> dict[str, Any]:
        """Of a LowNodeLoad that looks at several fixtures; what a pool does not have is left out."""
        given = {name: self.arguments[name] for name in _OF_NODE_POOLS if name in self.arguments}
        return {"name": self.name, "nodeSelector": {"matchLabels": {_LABEL: self.name}}, **given}

    def workloads(self) -> dict[str, int]:
        """ReplicaSets that want two pods more than there are: they recover from nothing."""
        counts = Counter(pod.workload for pod in self.pods if pod.owned)
        return {name: count + 2 for name, count in counts.items()}

    def names(self) -> frozenset[str]:
        return frozenset(pod.name for pod in self.pods)


def generated(seed: int) -> Fixture:
    """Of LowNodeLoad every other time, else of one of the other plugins in turn."""
    random = Random(seed)
    name = f"w{seed}"
    if seed % 2 == 0:
        return _Making(name, random).low_node_load()
    return _OTHERS[seed // 2 % len(_OTHERS)](_Making(name, random))


class _Making:
    def __init__(self, name: str, random: Random) -> None:
        self._name = name
        self._random = random
        self._used: set[int] = set()

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _distinct(self, low: int, high: int) -> int:
        """A number that this fixture has not seen yet."""
        while (number := self._random.randint(low, high)) in self._used:
            pass
        self._used.add(number)
        return number

    def _node(self, index: int, **fields: Any) -> NodeCase:
        labels = {_LABEL: self._name, "zone": f"z{index % 2}", "disk": self._random.choice(("ssd", "hdd"))}
        return NodeCase(f"{self._name}-n{index}", **{"labels": labels, "cpu": "8", **fields})

    def _pod(self, index: int, node: NodeCase, usage: str = "", **fields: Any) -> PodCase:
        fields.setdefault("workload", f"{self._name}-{self._random.choice('ab')}")
        fields.setdefault("owned", not self._chance(0.05))
        labels = {_LABEL: self._name, "tier": self._random.choice(("a", "b")), **fields.pop("labels", {})}
        return PodCase(f"{self._name}-p{index}", node.name, usage, labels=labels, **fields)

    def _budgets(self) -> Sequence[Budget]:
        if not self._chance(0.4):
            return ()
        matching = {_LABEL: self._name, "tier": "a"}
        return (Budget(f"{self._name}-budget", matching, self._random.choice((0, 1, 2))),)

    def _evictor(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        if self._chance(0.2):
            arguments["priorityThreshold"] = {"value": self._random.choice((5000, 9000))}
        if self._chance(0.1):
            arguments["minReplicas"] = 3
        if self._chance(0.1):
            arguments["labelSelector"] = {"matchLabels": {"tier": "b"}}
        if self._chance(0.1):
            arguments["evictLocalStoragePods"] = True
        return arguments

    def _fixture(
        self, plugin: str, point: str, arguments: Mapping[str, Any], nodes: Sequence[NodeCase], pods: Sequence[PodCase]
    ) -> Fixture:
        return Fixture(self._name, plugin, point, arguments, nodes, pods, self._budgets(), self._evictor())

    # LowNodeLoad

    def low_node_load(self) -> Fixture:
        nodes = [self._measured_node(index) for index in range(self._random.randint(2, 5))]
        pods = []
        for index in range(self._random.randint(3, 12)):
            node = nodes[0] if self._chance(0.7) else self._random.choice(nodes)
            pods.append(self._measured_pod(index, node))
        arguments = self._thresholds()
        if not arguments.get("nodeFit", True):
            # What those without a report use, ours estimates and the original takes for nothing.
            pods = [replace(pod, usage=pod.usage or "40m") for pod in pods]
        return self._fixture("LowNodeLoad", "balance", arguments, nodes, pods)

    def _measured_node(self, index: int) -> NodeCase:
        fields: dict[str, Any] = {"cpu": str(self._random.choice((2, 4, 4, 8)) if index == 0 else 16)}
        fields["memory"] = self._random.choice(("16Gi", "32Gi"))
        fields["system_cpu"] = f"{self._random.randint(0, 800)}m"
        if self._chance(0.1):
            fields["metric_age"] = self._random.choice((-1, 200, 100))
        if self._chance(0.1):
            fields["unschedulable"] = True
        if self._chance(0.1):
            fields["taints"] = [{"key": "only", "value": "gpu", "effect": "NoSchedule"}]
        if index == 0 and self._chance(0.3):
            fields["annotations"] = {_RAW_ALLOCATABLE: '{"cpu":"4","memory":"16Gi"}'}
        return self._node(index, **fields)

    def _measured_pod(self, index: int, node: NodeCase) -> PodCase:
        annotations: dict[str, str] = {}
        spec: dict[str, Any] = {}
        if self._chance(0.1):
            annotations[_EVICTION_COST] = str(self._random.randint(-100, 100))
        if self._chance(0.1):
            annotations[_DELETION_COST] = str(self._random.randint(-100, 100))
        if self._chance(0.05):
            annotations["descheduler.alpha.kubernetes.io/evict"] = "true"
        if self._chance(0.1):
            spec["nodeSelector"] = {"disk": self._random.choice(("ssd", "hdd"))}
        if self._chance(0.1):
            spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
        if self._chance(0.2):
            spec["tolerations"] = [{"operator": "Exists"}]
        usage = "" if self._chance(0.05) else f"{self._distinct(50, 1500)}m"
        labels = {"koordinator.sh/qosClass": self._random.choice(("BE", "LS", "LSR"))} if self._chance(0.5) else {}
        return self._pod(
            index,
            node,
            usage,
            memory_usage=f"{self._distinct(10_000, 2_000_000)}Ki",
            priority=self._random.choice((None, *_PRIORITIES)),
            requests={"cpu": f"{self._random.choice((100, 250, 500, 1000))}m", "memory": "128Mi"},
            annotations=annotations,
            labels=labels,
            spec=spec,
        )

    def _thresholds(self) -> dict[str, Any]:
        low, high = self._random.choice(((20, 40), (30, 50), (45, 60), (10, 70)))
        arguments: dict[str, Any] = {"lowThresholds": {"cpu": low}, "highThresholds": {"cpu": high}}
        if self._chance(0.3):
            arguments["lowThresholds"]["memory"] = 40
            arguments["highThresholds"]["memory"] = self._random.choice((40, 60, 80))
        if self._chance(0.2):
            arguments.update(
                useDeviationThresholds=True,
                lowThresholds={"cpu": self._random.choice((5, 10))},
                highThresholds={"cpu": 10},
            )
        elif self._chance(0.3):
            arguments["prodLowThresholds"] = {"cpu": low // 2}
            arguments["prodHighThresholds"] = {"cpu": high // 2}
        if self._chance(0.2):
            arguments["nodeFit"] = False
        if self._chance(0.15):
            arguments["numberOfNodes"] = 1
        if self._chance(0.2):
            arguments["resourceWeights"] = {"cpu": 3, "memory": self._random.choice((1, 5))}
        if self._chance(0.2):
            selector = {"matchLabels": {"tier": self._random.choice(("a", "b"))}}
            arguments["podSelectors"] = [{"name": "some", "selector": selector}]
        if self._chance(0.1):
            arguments["evictableNamespaces"] = {"exclude": [self._random.choice(("default", "kube-system"))]}
        arguments["anomalyCondition"] = {"consecutiveAbnormalities": 1}
        return arguments

    # The other plugins

    def high_node_utilization(self) -> Fixture:
        nodes = [self._node(index) for index in range(4)]
        pods = [
            *(self._requesting(index, nodes[0], 100, 700) for index in range(self._random.randint(1, 3))),
            *(self._requesting(10 + index, nodes[1], 1000, 2000) for index in range(self._random.randint(1, 3))),
            self._requesting(20, nodes[2], 2000, 4000),
        ]
        thresholds = {"cpu": self._random.choice((10, 20, 30))}
        return self._fixture("HighNodeUtilization", "balance", {"thresholds": thresholds}, nodes, pods)

    def low_node_utilization(self) -> Fixture:
        nodes = [self._node(index) for index in range(3)]
        pods = [self._requesting(index, nodes[0], 300, 1500) for index in range(self._random.randint(3, 8))]
        pods += [self._requesting(20 + index, nodes[1], 300, 1500) for index in range(self._random.randint(0, 3))]
        arguments: dict[str, Any] = {"thresholds": {"cpu": 30}, "targetThresholds": {"cpu": 50}}
        if self._chance(0.3):
            arguments.update(useDeviationThresholds=True, thresholds={"cpu": 10}, targetThresholds={"cpu": 10})
        return self._fixture("LowNodeUtilization", "balance", arguments, nodes, pods)

    def remove_duplicates(self) -> Fixture:
        nodes = [self._node(index, unschedulable=index == 3 and self._chance(0.3)) for index in range(4)]
        pods = []
        for index in range(self._random.randint(3, 9)):
            node = nodes[0] if self._chance(0.6) else self._random.choice(nodes)
            pods.append(self._requesting(index, node, 100, 300, owned=True))
        return self._fixture("RemoveDuplicates", "balance", {}, nodes, pods)

    def node_taints(self) -> Fixture:
        taints = [
            {"key": "only", "value": "gpu", "effect": "NoSchedule"},
            {"key": "known", "effect": "NoSchedule"},
            {"key": "better-not", "effect": "PreferNoSchedule"},
        ]
        nodes = [self._node(index, taints=self._random.sample(taints, index)) for index in range(3)]
        tolerations: Sequence[dict[str, Any]] = [
            {"key": "only", "value": "gpu"},
            {"key": "known", "operator": "Exists"},
            {"operator": "Exists"},
        ]
        pods = [
            self._requesting(
                index,
                self._random.choice(nodes),
                100,
                300,
                spec={"tolerations": self._random.sample(tolerations, self._random.choice((0, 0, 1, 2)))},
            )
            for index in range(8)
        ]
        arguments: dict[str, Any] = {"includePreferNoSchedule": self._chance(0.5)}
        if self._chance(0.5):
            arguments[self._random.choice(("excludedTaints", "includedTaints"))] = ["known"]
        return self._fixture("RemovePodsViolatingNodeTaints", "deschedule", arguments, nodes, pods)

    def node_affinity(self) -> Fixture:
        nodes = [self._node(index) for index in range(3)]
        pods = []
        for index in range(8):
            term = {"matchExpressions": [self._random.choice(self._expressions())]}
            kind = self._random.choice((_REQUIRED, _PREFERRED))
            terms: Any = {"nodeSelectorTerms": [term]} if kind == _REQUIRED else [{"weight": 1, "preference": term}]
            spec = {"affinity": {"nodeAffinity": {kind: terms}}}
            pods.append(self._requesting(index, self._random.choice(nodes), 100, 300, spec=spec))
        types = self._random.choice(([_REQUIRED], [_PREFERRED], [_REQUIRED, _PREFERRED]))
        return self._fixture("RemovePodsViolatingNodeAffinity", "deschedule", {"nodeAffinityType": types}, nodes, pods)

    def _expressions(self) -> Sequence[dict[str, Any]]:
        return (
            {"key": "zone", "operator": "In", "values": ["z0"]},
            {"key": "zone", "operator": "NotIn", "values": ["z0"]},
            {"key": "disk", "operator": "In", "values": ["ssd"]},
            {"key": "zone", "operator": "In", "values": ["nowhere"]},
            {"key": "gpu", "operator": "DoesNotExist"},
        )

    def anti_affinity(self) -> Fixture:
        nodes = [self._node(index) for index in range(3)]
        pods = []
        for index in range(8):
            fields: dict[str, Any] = {"labels": {"app": self._random.choice(("db", "web"))}}
            if self._chance(0.6):
                selector = {"matchLabels": {"app": self._random.choice(("db", "web")), _LABEL: self._name}}
                term = {"labelSelector": selector, "topologyKey": self._random.choice(("zone", "disk"))}
                fields["spec"] = {"affinity": {"podAntiAffinity": {_REQUIRED: [term]}}}
            pods.append(self._requesting(index, self._random.choice(nodes), 100, 300, **fields))
        return self._fixture("RemovePodsViolatingInterPodAntiAffinity", "deschedule", {}, nodes, pods)

    def topology_spread(self) -> Fixture:
        nodes = [self._node(index) for index in range(4)]
        constraint = {
            "maxSkew": self._random.choice((1, 2)),
            "topologyKey": "zone",
            "whenUnsatisfiable": self._random.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": {"matchLabels": {_LABEL: self._name}},
        }
        pods = [
            self._requesting(
                index,
                nodes[0] if self._chance(0.7) else self._random.choice(nodes),
                100,
                300,
                spec={"topologySpreadConstraints": [constraint]},
            )
            for index in range(self._random.randint(4, 9))
        ]
        kinds = self._random.choice((["DoNotSchedule"], ["DoNotSchedule", "ScheduleAnyway"]))
        arguments = {"constraints": kinds}
        return self._fixture("RemovePodsViolatingTopologySpreadConstraint", "balance", arguments, nodes, pods)

    def restarts(self) -> Fixture:
        nodes = [self._node(index) for index in range(2)]
        pods = []
        for index in range(8):
            container = {"name": "main", "restartCount": self._random.randint(0, 9), "ready": True, "image": "web"}
            status = {"containerStatuses": [{**container, "imageID": "web", "state": {"running": {}}}]}
            pods.append(self._requesting(index, self._random.choice(nodes), 100, 300, status=status))
        arguments = {"podRestartThreshold": self._random.randint(1, 8)}
        return self._fixture("RemovePodsHavingTooManyRestarts", "deschedule", arguments, nodes, pods)

    def custom_priority(self) -> Fixture:
        nodes = [self._node(index) for index in range(4)]
        pods = [self._requesting(index, self._random.choice(nodes), 500, 3000) for index in range(7)]
        order = [
            {"name": "dear", "nodeSelector": {"matchLabels": {"zone": "z0"}}},
            {"name": "cheap", "nodeSelector": {"matchLabels": {"zone": "z1"}}},
        ]
        mode = self._random.choice(("BestEffort", "DrainNode"))
        return self._fixture("CustomPriority", "balance", {"evictionOrder": order, "mode": mode}, nodes, pods)

    def fragmentation(self) -> Fixture:
        nodes = [self._node(index) for index in range(3)]
        pods = []
        for index in range(7):
            requests = {"cpu": f"{self._distinct(100, 2500)}m", "memory": f"{self._distinct(10_000, 4_000_000)}Ki"}
            pods.append(self._requesting(index, self._random.choice(nodes), 1, 2, requests=requests))
        arguments = {"imbalanceThreshold": self._random.choice((0.05, 0.15))}
        return self._fixture("FragmentationAware", "balance", arguments, nodes, pods)

    def _requesting(self, index: int, node: NodeCase, low: int, high: int, **fields: Any) -> PodCase:
        """A pod that differs from all others of this fixture in its priority."""
        fields.setdefault("requests", {"cpu": f"{self._random.randint(low, high)}m", "memory": "256Mi"})
        return self._pod(index, node, priority=self._distinct(10_000, 20_000), **fields)


_OTHERS: Final[Sequence[Callable[[_Making], Fixture]]] = (
    _Making.high_node_utilization,
    _Making.low_node_utilization,
    _Making.remove_duplicates,
    _Making.node_taints,
    _Making.node_affinity,
    _Making.anti_affinity,
    _Making.topology_spread,
    _Making.restarts,
    _Making.custom_priority,
    _Making.fragmentation,
)
