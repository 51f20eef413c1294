"""Random nodes, pods and events, all from one number: dense clusters in which constraints have something to decide."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec

from koordinator.api.kinds import REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS, Kind
from koordinator.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference
from koordinator.api.node import Node, NodeSpec, Taint
from koordinator.api.pod import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    Toleration,
    TopologySpreadConstraint,
)
from koordinator.scheduler.configuration.upstream_arguments import PodTopologySpreadArgs
from tests.scheduler.plugins.pod_topology_spread.fixtures import ClusterFixture
from tests.scheduler.plugins.pod_topology_spread.reference import HOSTNAME, ZONE

NODE_NAMES = [f"n{number}" for number in range(7)]
POD_NAMES = [f"p{number}" for number in range(25)]
_ELSEWHERE = POD_NAMES[::7]
_GONE = datetime(2026, 1, 1, tzinfo=UTC)
_STEPS = ("node", "place", "place", "place", "take", "take", "remove", "service", "controller")
_KEYS = (ZONE, ZONE, HOSTNAME, "rack")
_POLICIES = (None, None, "Honor", "Ignore")


class Dice:
    """Everything that a test leaves to chance."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def maybe(self, chance: float = 0.5) -> bool:
        return self._random.random() < chance

    def some(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if self.maybe(0.7)]

    def node(self, name: str) -> Node:
        pick = self._random.choice
        labels = {ZONE: pick(["a", "a", "b", "b", "c", ""])} if self.maybe(0.85) else {}
        labels |= {"rack": pick(["1", "2", "3"])} if self.maybe(0.85) else {}
        labels |= {HOSTNAME: pick([name, name, name, "twin"])} if self.maybe(0.9) else {}
        taints = [Taint(key="x", effect=pick(["NoSchedule", "PreferNoSchedule"]))] if self.maybe(0.3) else []
        return Node(metadata=ObjectMeta(name=name, uid=name, labels=labels), spec=NodeSpec(taints=taints))

    def labels(self) -> dict[str, str]:
        pick = self._random.choice
        labels = {"app": pick(["a", "a", "a", "b"])} if self.maybe(0.9) else {}
        return labels | ({"tier": pick(["a", "b"])} if self.maybe(0.3) else {})

    def running_pod(self, name: str) -> Pod:
        deleted = _GONE if self.maybe(0.15) else None
        namespace = "other" if name in _ELSEWHERE else "default"
        return Pod(
            metadata=ObjectMeta(
                name=name, namespace=namespace, uid=name, labels=self.labels(), deletion_timestamp=deleted
            )
        )

    def incoming_pod(self, name: str = "incoming") -> Pod:
        owners = []
        if self.maybe(0.4):
            kind = self._random.choice(["ReplicationController", "ReplicaSet", "StatefulSet", "Job"])
            version = "v1" if kind == "ReplicationController" or self.maybe(0.1) else "apps/v1"
            owners = [OwnerReference(api_version=version, kind=kind, name="owner", controller=self.maybe(0.9))]
        namespace = "default" if self.maybe(0.9) else "other"
        own = [self.constraint() for _ in range(self._random.choice([1, 1, 2, 2, 3]))] if self.maybe(0.7) else []
        return Pod(
            metadata=ObjectMeta(
                name=name, namespace=namespace, uid=name, labels=self.labels(), owner_references=owners
            ),
            spec=PodSpec(
                topology_spread_constraints=own,
                node_selector={ZONE: "a"} if self.maybe(0.15) else {},
                affinity=self._affinity() if self.maybe(0.3) else None,
                tolerations=[Toleration(key="x", operator="Exists")] if self.maybe(0.3) else [],
            ),
        )

    def constraint(self) -> TopologySpreadConstraint:
        pick = self._random.choice
        return TopologySpreadConstraint(
            max_skew=pick([1, 1, 2, 3]),
            topology_key=pick(_KEYS),
            when_unsatisfiable=pick(["DoNotSchedule", "ScheduleAnyway"]),
            label_selector=self.selector(),
            min_domains=pick([None, None, 2, 4]),
            node_affinity_policy=pick(_POLICIES),
            node_taints_policy=pick(_POLICIES),
            match_label_keys=["tier"] if self.maybe(0.2) else [],
        )

    def selector(self) -> LabelSelector | None:
        pick = self._random.choice
        if self.maybe(0.05):
            return None
        operator = pick(["In", "NotIn", "Exists", "DoesNotExist"])
        values = [pick(["a", "b"]), pick(["a", "b"])] if operator in ("In", "NotIn") else []
        expression = LabelSelectorRequirement(key=pick(["app", "tier"]), operator=operator, values=values)
        labels = {"app": pick(["a", "a", "b"])} if self.maybe(0.7) else {}
        return LabelSelector(match_labels=labels, match_expressions=[expression] if self.maybe(0.3) else [])

    def arguments(self) -> PodTopologySpreadArgs:
        if self.maybe(0.6):
            return PodTopologySpreadArgs()
        plain = [
            msgspec.structs.replace(self.constraint(), label_selector=None, match_label_keys=[])
            for _ in range(self._random.randrange(3))
        ]
        return PodTopologySpreadArgs(default_constraints=plain, defaulting_type="List")

    def fixture(self) -> ClusterFixture:
        """A cluster after some events."""
        fixture = ClusterFixture(self.arguments())
        for name in NODE_NAMES:
            fixture.set_node(self.node(name))
        if self.maybe(0.8):
            fixture.set_service("s0", {"app": "a"})
        for _ in range(self._random.randrange(40)):
            self.step(fixture)
        return fixture

    def step(self, fixture: ClusterFixture) -> None:
        """One event."""
        pick = self._random.choice
        event, name = pick(_STEPS), pick(NODE_NAMES)
        if event == "service":
            selector = self.labels() if self.maybe(0.8) else None
            fixture.set_service(pick(["s0", "s1"]), selector, "default" if self.maybe(0.8) else "other")
        elif event == "controller":
            kind: Kind[Any] = self._random.choice([REPLICATION_CONTROLLERS, REPLICA_SETS, STATEFUL_SETS])
            fixture.set_controller(kind, self.selector(), present=self.maybe(0.8))
        elif name not in fixture.machines or (event == "node" and self.maybe()):
            fixture.set_node(self.node(name))
        elif event == "take":
            fixture.take(pick(POD_NAMES))
        elif event == "remove" and self.maybe(0.3):
            fixture.remove_node(name)
        else:
            fixture.place(self.running_pod(pick(POD_NAMES)), name)

    def _affinity(self) -> Affinity:
        terms = [
            NodeSelectorTerm(
                match_expressions=[
                    NodeSelectorRequirement(key="rack", operator=self._random.choice(["In", "NotIn"]), values=[value])
                ]
            )
            for value in self._random.sample(["1", "2", "3"], self._random.choice([1, 1, 2]))
        ]
        selector = NodeSelector(node_selector_terms=terms)
        return Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector))
