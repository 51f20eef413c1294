"""What is remembered of nodes: it is computed once a row, and again when the labels, or the node, are others."""

from __future__ import annotations

import numpy as np

from koordinator.api.node import Node
from koordinator.scheduler.plugins.node_labels import HOST_NAME, KnownResults, LabelRows
from tests.scheduler.fakes import make_node, make_state


class Scene:
    """``seen`` are the nodes that the function was called for."""

    def __init__(self) -> None:
        self.state = make_state()
        self.rows = LabelRows.of(self.state.view)
        self.state.add_event_handlers([self.rows])
        self.known = KnownResults(self.state.view)
        self.seen: list[str] = []

    def set_node(self, name: str, cpu: str = "4", **labels: str) -> None:
        self.state.set_node(make_node(name, cpu=cpu, labels={HOST_NAME: name, **labels}))

    def values(self, hosts: frozenset[str] | None = None) -> dict[str, int]:
        """By node; each is asked alone as well."""
        self.seen.clear()
        columns = self.state.view.columns
        results = self.known.get(("zone", hosts), lambda: self._zone, hosts)
        rows = np.sort(np.array(list(columns.row_of.values()), dtype=np.intp))
        found = results.of(rows).tolist()
        assert found == [results.of(row) for row in rows.tolist()]
        return {columns.names[row]: value for row, value in zip(rows.tolist(), found, strict=True)}

    def _zone(self, node: Node) -> int:
        self.seen.append(node.metadata.name)
        return int(node.metadata.labels.get("zone", "0"))


def test_a_node_is_looked_at_again_when_its_labels_change_and_only_then() -> None:
    scene = Scene()
    scene.set_node("a", zone="1")
    scene.set_node("b", zone="2")
    assert (scene.values(), scene.seen) == ({"a": 1, "b": 2}, ["a", "b"])
    scene.set_node("a", cpu="8", zone="1")
    assert (scene.values(), scene.seen) == ({"a": 1, "b": 2}, [])
    scene.set_node("b", zone="3")
    assert (scene.values(), scene.seen) == ({"a": 1, "b": 3}, ["b"])


def test_a_node_that_takes_the_row_of_another_is_looked_at() -> None:
    scene = Scene()
    scene.set_node("a", zone="1")
    scene.values()
    row = scene.state.view.columns.row_of["a"]
    scene.state.remove_node("a")
    scene.set_node("c", zone="1")
    assert scene.state.view.columns.row_of["c"] == row
    assert (scene.values(), scene.seen) == ({"c": 1}, ["c"])


def test_only_the_named_hosts_are_looked_at() -> None:
    scene = Scene()
    for name in "abc":
        scene.set_node(name, zone="5")
    assert (scene.values(frozenset({"b"})), scene.seen) == ({"a": 0, "b": 5, "c": 0}, ["b"])


def test_nothing_is_taken_for_known_after_a_reset() -> None:
    scene = Scene()
    scene.set_node("a", zone="1")
    scene.values()
    scene.rows.on_reset()
    node = scene.state.view.columns.nodes[0]
    assert node is not None
    scene.rows.on_node(0, node)
    assert (scene.values(), scene.seen) == ({"a": 1}, ["a"])
