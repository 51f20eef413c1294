"""Whatever happens on a cluster, in whatever order a scheduler is shown it: it knows what the objects say."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from koordinator.api.annotations import RESERVATION_ALLOCATED
from koordinator.api.kinds import (
    CSI_NODES,
    DEVICES,
    ELASTIC_QUOTAS,
    NODE_METRICS,
    NODE_RESOURCE_TOPOLOGIES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_GROUPS,
    PODS,
    RESERVATIONS,
    Kind,
)
from koordinator.api.labels import QUOTA_NAME, QUOTA_PREEMPTIBLE
from tests.examples import examples
from tests.scheduler.oracle.documents import RESIZES, SHAPES, TEAM
from tests.scheduler.oracle.scripted_cluster import Fault
from tests.scheduler.oracle.story import KINDS, Story
from tests.scheduler.watch.test_resync import AFTER, HANDLERS, points_of

NODE = st.sampled_from(["n0", "n1", "n2"])
POD = st.sampled_from([f"p{number}" for number in range(6)])
NUMBER = st.integers(0, 5)
SHAPE = st.sampled_from(SHAPES)
SIZE = st.integers(0, 2)
RESERVATION = st.sampled_from(["r0", "r1"])
RESERVED = st.sampled_from(["plain", "gpu", "cpus"])
POLICY = st.sampled_from(["", "Aligned", "Restricted"])
QUOTA = st.sampled_from([TEAM, "child-0", "child-1"])
FAULTS: list[Fault] = ["", "refused", "conflict", "unavailable", "lost before", "lost after", "unanswered"]
METHODS = [(name, point) for name, handler in HANDLERS.items() for point in points_of(handler)]
ABOUT_NODES = st.sampled_from([NODES, DEVICES, NODE_RESOURCE_TOPOLOGIES, NODE_METRICS])


class AnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.story = Story()

    def teardown(self) -> None:
        try:
            self.story.finish()
        finally:
            self.story.close()

    @invariant()
    def it_knows_what_the_objects_say(self) -> None:
        self.story.settle()
        self.story.check()

    @initialize()
    def there_are_some(self) -> None:
        """Of each kind, since what happens to an object is of interest when there is one."""
        for name, size in (("n0", 1), ("n1", 2)):
            self.story.put_node(name, size)
            self.story.put_device(name, 2)
            self.story.put_topology(name, 4)
        self.story.put_quota(TEAM, 8)
        self.story.reserve("r0", "plain", 1, once=False, node="n0")
        self.story.place_elsewhere("p0", "owner", "n0", 0)
        self.story.place_elsewhere("p1", "half", "n1", 0)
        self.story.place_elsewhere("p2", "port", "n1", 0)
        self.story.create_pod("p3", "quota")

    # Nodes and what is about them.

    @rule(name=NODE, size=SIZE, cordoned=st.booleans(), tainted=st.booleans())
    def put_node(self, name: str, size: int, cordoned: bool, tainted: bool) -> None:
        self.story.put_node(name, size, cordoned=cordoned, tainted=tainted)

    @rule(kind=ABOUT_NODES, name=NODE)
    def remove_about_node(self, kind: Kind[Any], name: str) -> None:
        if kind is DEVICES and self.story.cluster.found(NODES, name) is not None:
            # As with the original, devices whose object is deleted are ill, while of a node that has never had one
            # nothing is known.
            kind = NODES
        self.story.cluster.remove(kind, name)

    @rule(name=NODE, collected=st.booleans(), size=SIZE)
    def lose_node(self, name: str, collected: bool, size: int) -> None:
        self.story.lose_node(name, collected=collected, size=size)

    @rule(name=NODE, count=SIZE, healthy=st.booleans())
    def put_device(self, name: str, count: int, healthy: bool) -> None:
        self.story.put_device(name, count, healthy=healthy)

    @rule(name=NODE, cores=st.sampled_from([2, 4, 8]))
    def put_topology(self, name: str, cores: int) -> None:
        self.story.put_topology(name, cores)

    @rule(name=NODE, cpu=SIZE)
    def put_metric(self, name: str, cpu: int) -> None:
        self.story.put_metric(name, cpu)

    # Pods.

    @rule(name=POD, shape=SHAPE, size=SIZE)
    def create_pod(self, name: str, shape: str, size: int) -> None:
        self.story.create_pod(name, shape, size)

    @rule(name=POD, shape=SHAPE, fault=st.sampled_from(FAULTS[1:-1]))
    def try_in_vain(self, name: str, shape: str, fault: Fault) -> None:
        self.story.try_in_vain(name, shape, fault)

    @rule(name=POD, shape=SHAPE, node=NODE, number=SIZE, readable=st.booleans())
    def place_elsewhere(self, name: str, shape: str, node: str, number: int, readable: bool) -> None:
        self.story.place_elsewhere(name, shape, node, number, readable=readable)

    @rule(number=NUMBER, node=NODE)
    def bind_elsewhere(self, number: int, node: str) -> None:
        if name := self._one(number, placed=False):
            self.story.bind_elsewhere(name, node)

    @rule(number=NUMBER, cpu=st.sampled_from(["500m", "1", "3"]), state=st.sampled_from(RESIZES))
    def resize(self, number: int, cpu: str, state: str) -> None:
        if name := self._one(number, placed=True):
            self.story.resize(name, cpu, state)

    @rule(number=NUMBER, cpu=st.sampled_from(["500m", "1", "3"]))
    def resize_owner(self, number: int, cpu: str) -> None:
        """One of those that take from a Reservation, and the kubelet is through with it."""
        owners = [name for name in self.story.pods(placed=True) if self.story.takes_from_a_reservation(name)]
        if owners:
            self.story.resize(owners[number % len(owners)], cpu, "done")

    @rule(
        number=NUMBER,
        placed=st.booleans(),
        quota=st.sampled_from(["", TEAM, "child-0", "nobody"]),
        app=st.sampled_from(["", "owner"]),
    )
    def label(self, number: int, placed: bool, quota: str, app: str) -> None:
        if name := self._one(number, placed=placed):
            self.story.label(name, QUOTA_NAME, quota)
            if app:
                self.story.label(name, "app", app)

    @rule(number=NUMBER, preemptible=st.booleans())
    def label_preemptible(self, number: int, preemptible: bool) -> None:
        for placed in (False, True):
            if name := self._one(number, placed=placed):
                self.story.label(name, QUOTA_PREEMPTIBLE, str(preemptible).lower())

    @rule(number=NUMBER)
    def get_ready(self, number: int) -> None:
        if name := self._one(number, placed=True):
            self.story.get_ready(name)

    @rule(number=NUMBER, reservation=RESERVATION)
    def take_from(self, number: int, reservation: str) -> None:
        found = self.story.cluster.found(RESERVATIONS, reservation)
        if found is not None and (name := self._one(number, placed=True)):
            record = {"name": reservation, "uid": found["metadata"]["uid"]}
            self.story.annotate(name, RESERVATION_ALLOCATED, json.dumps(record))

    @rule(number=NUMBER, placed=st.booleans(), end=st.sampled_from(["terminate", "finish", "delete", "delete"]))
    def end_pod(self, number: int, placed: bool, end: str) -> None:
        if name := self._one(number, placed=placed):
            match end:
                case "terminate":
                    self.story.terminate(name)
                case "finish":
                    self.story.finish_pod(name)
                case _:
                    self.story.cluster.remove(PODS, name, "default")

    def _one(self, number: int, *, placed: bool) -> str | None:
        names = self.story.pods(placed=placed)
        return names[number % len(names)] if names else None

    @rule(name=POD, node=NODE)
    def place_unreadable(self, name: str, node: str) -> None:
        self.story.place_unreadable(name, node)

    # Volumes.

    @rule(name=st.sampled_from(["data-0", "data-1"]), handle=st.sampled_from(["", "a", "b"]))
    def claim(self, name: str, handle: str) -> None:
        if handle:
            self.story.put_claim(name, handle)
        else:
            self.story.cluster.remove(PERSISTENT_VOLUME_CLAIMS, name, "default")

    @rule(name=NODE, limit=st.integers(-1, 1))
    def csi_node(self, name: str, limit: int) -> None:
        if limit >= 0:
            self.story.put_csi_node(name, limit)
        else:
            self.story.cluster.remove(CSI_NODES, name)

    # Reservations, quotas and gangs.

    @rule(
        name=RESERVATION,
        shape=RESERVED,
        size=SIZE,
        once=st.booleans(),
        policy=POLICY,
        ttl=st.sampled_from(["24h", "20s"]),
        takes_over=st.booleans(),
    )
    def reserve(self, name: str, shape: str, size: int, once: bool, policy: str, ttl: str, takes_over: bool) -> None:
        self.story.reserve(name, shape, size, once=once, policy=policy, ttl=ttl, takes_over=takes_over)

    @rule(name=RESERVATION, shape=RESERVED, size=SIZE, once=st.booleans(), policy=POLICY, node=NODE)
    def place_reservation(self, name: str, shape: str, size: int, once: bool, policy: str, node: str) -> None:
        self.story.reserve(name, shape, size, once=once, policy=policy, node=node)

    @rule(name=RESERVATION, cpu=st.integers(0, 4))
    def resize_reservation(self, name: str, cpu: int) -> None:
        self.story.resize_reservation(name, cpu)

    @rule(name=RESERVATION, phase=st.sampled_from(["Failed", "Succeeded", ""]))
    def end_reservation(self, name: str, phase: str) -> None:
        if phase:
            self.story.end_reservation(name, phase)
        else:
            self.story.cluster.remove(RESERVATIONS, name)

    @rule(name=QUOTA, cpu=st.integers(1, 12), parent=st.booleans())
    def put_quota(self, name: str, cpu: int, parent: bool) -> None:
        self.story.put_quota(name, cpu, parent=parent and name != TEAM)

    @rule(name=QUOTA)
    def remove_quota(self, name: str) -> None:
        self.story.cluster.remove(ELASTIC_QUOTAS, name, "default")

    @rule(minimum=st.integers(0, 3))
    def pod_group(self, minimum: int) -> None:
        if minimum:
            self.story.put_pod_group(minimum)
        else:
            self.story.cluster.remove(POD_GROUPS, "gang", "default")

    # How it is shown, how it is answered, and time.

    @rule(kind=st.sampled_from(KINDS))
    def be_late(self, kind: Kind[Any]) -> None:
        self.story.cluster.be_late(kind)

    @rule(kind=st.sampled_from(KINDS))
    def lose(self, kind: Kind[Any]) -> None:
        self.story.cluster.lose(kind)

    @rule()
    def catch_up(self) -> None:
        for kind in KINDS:
            self.story.cluster.catch_up(kind)

    @rule(kind=st.sampled_from(KINDS), number=st.integers(0, 20))
    def repeat(self, kind: Kind[Any], number: int) -> None:
        self.story.cluster.repeat(kind, number)

    @rule(fault=st.sampled_from(FAULTS))
    def bindings_fail(self, fault: Fault) -> None:
        self.story.bindings_fail(fault)

    @rule(fault=st.sampled_from(FAULTS[:-1]))
    def patches_fail(self, fault: Fault) -> None:
        self.story.patches_fail(fault)

    @rule(method=st.sampled_from(METHODS), lines=st.sampled_from([0, 1, 2, 3, 5, 8, 12, 16, 20, 30, AFTER]))
    def handler_fails(self, method: tuple[str, str], lines: int) -> None:
        self.story.handler_fails(*method, lines)

    @rule(fault=st.sampled_from(FAULTS[:-1]))
    def answer(self, fault: Fault) -> None:
        self.story.cluster.answer(fault)

    @rule(seconds=st.sampled_from([1, 15, 70]))
    def wait(self, seconds: int) -> None:
        self.story.settle(seconds)

    @rule()
    def look_anew(self) -> None:
        self.story.check_restarted()

    @rule()
    def restart(self) -> None:
        self.story.restart()


AnyOrder.TestCase.settings = settings(max_examples=examples(50), stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase
