"""DrainNodeGroups from their creation to their end, with the real drains of their nodes in a simulated cluster."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.document import Document, copied
from koordinator.api.kinds import DRAIN_NODE_GROUPS, DRAIN_NODES, NODES, PODS, RESERVATIONS
from tests.descheduler.drain.test_drain_node import Bench
from tests.descheduler.migration import scene
from tests.descheduler.migration.simulated_cluster import SimulatedCluster

_DOMAIN = "drain.descheduler.koordinator.sh"
_GROUP = f"{_DOMAIN}/node-group"
_SELECTOR = {"matchLabels": {"pool": "old"}}


class Pool(Bench):
    """old-a, old-b and old-c with one pod of a Deployment each, of which old-c has the most free capacity, and node-2,
    which is of no group and takes every pod."""

    def __init__(self) -> None:
        self.cluster = SimulatedCluster()
        scene.deployment(self.cluster, 6)
        self.names = ["web-a", "web-b", "web-c"]
        for name, cpu in zip("abc", ("3", "2", "1"), strict=True):
            self.add_node(f"old-{name}", pool="old")
            pod = scene.pod(self.cluster, f"web-{name}", f"old-{name}")
            pod["spec"]["containers"] = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
            self.cluster.put(PODS, pod)
        self.add_node("node-2")
        self.start()
        self.has_capacity = True
        self.is_scaled_down = False
        self.planned: list[str] = []
        """The nodes in the order in which DrainNodes were created for them."""

    def add_node(self, name: str, **labels: str) -> None:
        amounts = {"cpu": "4", "memory": "16Gi"}
        metadata = {"name": name, "labels": labels}
        self.cluster.put(NODES, {"metadata": metadata, "spec": {}, "status": {"allocatable": amounts}})

    def create_group(self, name: str = "old", **spec: Any) -> None:
        document = {"metadata": {"name": name}, "spec": {"nodeSelector": _SELECTOR, **spec}}
        self.cluster.put(DRAIN_NODE_GROUPS, document)

    def edit_group(self, name: str = "old", *, metadata: dict[str, Any] | None = None, **spec: Any) -> None:
        document = copied(self.cluster.documents(DRAIN_NODE_GROUPS)[name])
        document["spec"].update(spec)
        document["metadata"].update(metadata or {})
        self.cluster.put(DRAIN_NODE_GROUPS, document)

    def play(self, rounds: int = 12, *, seconds: float = 3) -> None:
        for _ in range(rounds):
            self.cluster.deliver()
            assert self.plugin.drain_groups is not None
            for name in list(self.cluster.documents(DRAIN_NODE_GROUPS)):
                self._work(self.plugin.drain_groups.reconcile(name))
            nodes = [each["spec"]["nodeName"] for each in self.drains.values()]
            self.planned += [node for node in nodes if node not in self.planned]
            super().play(1, seconds=seconds)

    def play_to_the_end(self) -> None:
        """Of the group old."""
        for _ in range(40):
            self.play(1)
            if self.group().get("phase") in ("Succeeded", "Failed", "Aborted"):
                return

    @property
    def drains(self) -> dict[str, Document]:
        return self.cluster.documents(DRAIN_NODES)

    def group(self, name: str = "old") -> Document:
        found: Document = self.cluster.documents(DRAIN_NODE_GROUPS)[name].get("status", {})
        return found

    def phases(self) -> dict[str, str]:
        """Of the DrainNodes, by node."""
        return {each["spec"]["nodeName"]: each["status"]["phase"] for each in self.drains.values()}

    def labelled(self) -> dict[str, str]:
        """The groups of the nodes that have one."""
        labels = {name: node["metadata"].get("labels", {}) for name, node in self.cluster.documents(NODES).items()}
        return {name: found[_GROUP] for name, found in labels.items() if _GROUP in found}

    def cordoned(self) -> set[str]:
        nodes = self.cluster.documents(NODES).items()
        return {name for name, node in nodes if node.get("spec", {}).get("unschedulable")}


def test_all_nodes_are_drained() -> None:
    pool = Pool()
    pool.create_group()
    pool.play_to_the_end()
    assert pool.group()["phase"] == "Succeeded"
    assert (pool.group()["totalCount"], pool.group()["succeededCount"]) == (3, 3)
    assert pool.phases() == dict.fromkeys(("old-a", "old-b", "old-c"), "Complete")
    assert pool.cordoned() == {"old-a", "old-b", "old-c"}
    assert not [pod for pod in pool.cluster.documents(PODS).values() if pod["spec"]["nodeName"] != "node-2"]
    reported = [each.reason for each in pool.cluster.recorded.events if each.regarding.kind == "DrainNodeGroup"]
    assert reported == ["Pending", "Planning", "Waiting", "Running", "Succeeded"]


def test_the_node_with_the_most_free_capacity_is_planned_first() -> None:
    pool = Pool()
    pool.create_group()
    pool.play_to_the_end()
    assert pool.planned == ["old-c", "old-b", "old-a"]


def test_nothing_is_evicted_while_nodes_are_planned() -> None:
    pool = Pool()
    pool.create_group()
    for _ in range(100):
        assert not pool.cluster.evicted
        pool.play(1)
        if pool.group().get("phase") not in (None, "Pending", "Planning"):
            break
    assert pool.group()["phase"] in ("Waiting", "Running")
    assert len(pool.planned) == 3


def test_nodes_of_the_group_are_labelled_until_it_ends() -> None:
    pool = Pool()
    pool.add_node("strange", **{_GROUP: "of-long-ago"})
    pool.create_group()
    pool.play(3)
    assert pool.labelled() == dict.fromkeys(("old-a", "old-b", "old-c"), "old")
    pool.play_to_the_end()
    assert pool.labelled() == {}


def test_no_more_than_max_node_count_are_drained() -> None:
    pool = Pool()
    pool.create_group(terminationPolicy={"maxNodeCount": 2})
    pool.play_to_the_end()
    assert pool.group()["phase"] == "Succeeded"
    assert pool.phases() == {"old-c": "Complete", "old-b": "Complete"}
    assert pool.cordoned() == {"old-b", "old-c"}


@pytest.mark.parametrize(
    ("percentage", "planned"),
    [
        # 12 CPUs in all, and 1, 2 and 3 of them are free on old-a, old-b and old-c.
        (25, ["old-c"]),
        (8, ["old-c", "old-b"]),
        (26, []),
    ],
)
def test_the_rest_of_the_group_keeps_free_capacity(percentage: int, planned: list[str]) -> None:
    pool = Pool()
    pool.create_group(terminationPolicy={"percentageOfResourceReserved": percentage})
    pool.play_to_the_end()
    assert pool.planned == planned
    assert pool.group()["phase"] == ("Succeeded" if planned else "Failed")


def test_what_is_reserved_on_a_node_of_the_group_is_not_free() -> None:
    pool = Pool()
    pool.cluster.put(
        RESERVATIONS,
        {
            "metadata": {"name": "release"},
            "status": {"phase": "Available", "nodeName": "old-c", "allocatable": {"cpu": "2500m"}},
        },
    )
    pool.create_group()
    pool.play_to_the_end()
    assert pool.planned == ["old-b", "old-a", "old-c"]


def test_partition_is_how_many_are_drained_in_all() -> None:
    pool = Pool()
    pool.create_group(executionPolicy={"partition": 1})
    pool.play_to_the_end()
    assert (pool.group()["phase"], pool.group()["message"]) == ("Waiting", "partition is 1")
    assert pool.phases() == {"old-a": "Complete", "old-b": "Running", "old-c": "Running"}
    assert len(pool.cluster.evicted) == 1
    pool.edit_group(executionPolicy={"partition": 3})
    pool.play_to_the_end()
    assert pool.group()["phase"] == "Succeeded"


def test_a_paused_group_confirms_nothing() -> None:
    pool = Pool()
    pool.create_group(executionPolicy={"paused": True})
    pool.play_to_the_end()
    assert (pool.group()["phase"], pool.group()["availableCount"]) == ("Waiting", 3)
    assert not pool.cluster.evicted
    pool.edit_group(executionPolicy={})
    pool.play_to_the_end()
    assert pool.group()["phase"] == "Succeeded"


def test_a_node_whose_pods_find_no_place_is_given_back_and_the_others_are_drained() -> None:
    pool = Pool()
    scene.pod(pool.cluster, "bare", "old-c", ownerReferences=[])
    pool.create_group()
    pool.play_to_the_end()
    assert pool.group()["phase"] == "Succeeded"
    assert pool.phases() == {"old-a": "Complete", "old-b": "Complete", "old-c": "Aborted"}
    assert pool.cordoned() == {"old-a", "old-b"}
    (condition,) = [each for each in pool.group()["conditions"] if each["status"] == "True"]
    assert condition["type"] == "UnavailableNodeExists"
    assert condition["message"] == "old-c (default/bare: pod has no controller, set force)"


def test_a_group_of_which_no_node_can_be_drained_fails_and_leaves_nothing_behind() -> None:
    pool = Pool()
    pool.has_capacity = False
    pool.create_group()
    pool.play_to_the_end()
    assert (pool.group()["phase"], pool.group()["unavailableCount"]) == ("Failed", 3)
    assert not pool.cordoned()
    assert not list(pool.cluster.reservations())


def test_an_aborted_group_leaves_nothing_behind() -> None:
    pool = Pool()
    pool.create_group(executionPolicy={"partition": 1})
    pool.play_to_the_end()
    pool.edit_group(metadata={"labels": {f"{_DOMAIN}/abort": "true"}})
    pool.play(6)
    assert pool.group()["phase"] == "Aborted"
    assert set(pool.phases().values()) == {"Aborted"}
    assert not pool.cordoned()
    assert pool.labelled() == {}
    assert {each["status"]["phase"] for each in pool.cluster.reservations()} <= {"Succeeded"}


def test_a_group_whose_time_is_over_is_aborted() -> None:
    pool = Pool()
    pool.create_group(ttl="10m", executionPolicy={"paused": True})
    pool.play(20)
    pool.play(2, seconds=600)
    pool.play(4)
    assert (pool.group()["phase"], pool.group()["message"]) == ("Aborted", "ttl has passed")
    assert not pool.cordoned()


def test_the_nodes_of_a_finished_group_are_given_back_where_that_is_requested() -> None:
    pool = Pool()
    pool.create_group()
    pool.play_to_the_end()
    pool.edit_group(metadata={"labels": {f"{_DOMAIN}/clean-taint": "true"}})
    pool.play(4)
    assert not pool.cordoned()
    assert (pool.group()["phase"], pool.group()["succeededCount"]) == ("Succeeded", 3)


def test_one_group_after_the_other() -> None:
    pool = Pool()
    pool.add_node("new-a", pool="new")
    pool.create_group(executionPolicy={"paused": True})
    pool.play(2)
    pool.create_group("later", nodeSelector={"matchLabels": {"pool": "new"}})
    pool.play(20)
    assert (pool.group("later")["phase"], pool.group("later")["message"]) == ("Pending", "waits for DrainNodeGroup old")
    pool.edit_group(executionPolicy={})
    pool.play_to_the_end()
    pool.play(16)
    assert (pool.group()["phase"], pool.group("later")["phase"]) == ("Succeeded", "Succeeded")


def test_a_node_that_somebody_else_drains_is_left_alone() -> None:
    pool = Pool()
    pool.create("mine", nodeName="old-c", confirmState="WaitForConfirm")
    pool.play(2)
    pool.create_group()
    pool.play_to_the_end()
    assert pool.planned == ["old-c", "old-b", "old-a"]
    assert pool.drains["mine"]["status"]["phase"] == "Running"
    assert (pool.group()["phase"], pool.group()["succeededCount"]) == ("Succeeded", 2)


def test_a_drain_node_of_the_same_name_is_not_taken_over() -> None:
    pool = Pool()
    pool.create("old-old-c", nodeName="node-2", confirmState="WaitForConfirm")
    pool.create_group()
    pool.play(20)
    assert pool.group()["message"] == "waits until DrainNode old-old-c, which is another's, is gone"
    pool.edit("old-old-c", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    pool.play_to_the_end()
    assert pool.group()["phase"] == "Succeeded"


def test_a_deleted_group_takes_its_labels_along() -> None:
    pool = Pool()
    pool.create_group(executionPolicy={"paused": True})
    pool.play(20)
    pool.edit_group(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    pool.play(2)
    assert not pool.cluster.documents(DRAIN_NODE_GROUPS)
    assert not pool.drains
    assert pool.labelled() == {}
    assert not pool.cordoned()


@pytest.mark.parametrize(("labels", "stays"), [({}, True), ({f"{_DOMAIN}/clean-taint": "true"}, False)])
def test_what_becomes_of_the_nodes_of_a_finished_group_that_is_deleted(labels: dict[str, str], stays: bool) -> None:
    pool = Pool()
    pool.create_group(terminationPolicy={"maxNodeCount": 1})
    pool.play_to_the_end()
    pool.edit_group(metadata={"labels": labels, "deletionTimestamp": "2026-01-01T00:00:00Z"})
    pool.play(3)
    assert not pool.drains
    assert pool.cordoned() == ({"old-c"} if stays else set())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"nodeSelector": {"matchLabels": {"pool": "none"}}}, "spec.nodeSelector matches no node"),
        (
            {"nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "Like", "values": ["o"]}]}},
            "spec.nodeSelector: ",
        ),
    ],
)
def test_a_selector_that_selects_nothing_fails_the_group(spec: dict[str, Any], message: str) -> None:
    pool = Pool()
    pool.create_group(**spec)
    pool.play(4)
    assert pool.group()["phase"] == "Failed"
    assert pool.group()["message"].startswith(message)


def test_names_of_drain_nodes_fit_into_a_label() -> None:
    pool = Pool()
    name = "node-" + "x" * 60
    pool.add_node(name, pool="long")
    pool.create_group(nodeSelector={"matchLabels": {"pool": "long"}})
    pool.play_to_the_end()
    assert pool.group()["phase"] == "Succeeded"
    assert pool.phases() == {name: "Complete"}
