"""Kinds of change that plugins bring along."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from koordinator.api.codec import convert
from koordinator.api.kinds import CSI_NODES
from koordinator.api.meta import Object
from koordinator.api.volume import CSINode
from koordinator.scheduler.engine.columns import Aspect, Ints, NamedAspect, Rows
from koordinator.scheduler.engine.framework import FilterPlugin, Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.view import ClusterView
from tests.scheduler.fakes import describe, make_node, make_pod
from tests.scheduler.ground.clusters import NOW, Cluster
from tests.scheduler.ground.test_simulation import Real

LIGHTS = NamedAspect("example.com/Lights", is_static=True)


class Lights(FilterPlugin):
    """Nodes on which the light is on; counts its calls."""

    name = "Lights"
    reads = (LIGHTS,)

    def __init__(self, args: Any, view: ClusterView) -> None:
        super().__init__(args, view)
        self.dark: set[int] = set()
        self.calls = 0
        self._number = view.columns.aspect(LIGHTS)

    def switch(self, row: int) -> None:
        self.dark ^= {row}
        self.view.columns.touch(row, self._number)

    def class_key(self, pod: PodInfo) -> Hashable:
        return None

    def filter(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        self.calls += rows.size
        return np.array([row in self.dark for row in rows.tolist()], dtype=np.int64)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (Reason("node(s) were dark"),)


def test_who_reads_it_is_queried_again_and_nobody_else() -> None:
    cluster = Cluster([make_node("a"), make_node("b")], Lights)
    lights, fit = cluster.profile.plugins["Lights"], cluster.profile.plugins["Fit"]
    assert isinstance(lights, Lights)
    cluster.engine.decide(describe(make_pod("p")), NOW)
    by_fit = fit.filtered_rows  # type: ignore[attr-defined]
    lights.switch(0)
    lights.switch(1)
    rejection = cluster.engine.decide(describe(make_pod("q")), NOW)
    assert getattr(rejection, "message", "") == "0/2 nodes are available: 2 node(s) were dark."
    assert lights.calls == 4
    assert fit.filtered_rows == by_fit  # type: ignore[attr-defined]


def test_equal_names_are_one_aspect() -> None:
    cluster = Cluster([make_node("a")], Lights)
    columns = cluster.view.columns
    assert columns.aspect(NamedAspect("example.com/Lights")) == columns.aspect(LIGHTS) == len(Aspect)
    assert columns.mask((Aspect.PODS, LIGHTS)) == 1 << Aspect.PODS | 1 << len(Aspect)


def test_a_csi_node_is_no_change_of_its_node() -> None:
    real = Real()
    columns = real.view.columns
    before = columns.versions(Aspect.NODE).tolist()
    document: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"drivers": [{"name": "d", "nodeID": "a"}]}}
    node: Object = convert(document, CSINode)
    real.state.set_node_object(CSI_NODES.name, "a", node)
    assert columns.versions(Aspect.NODE).tolist() == before
    changed = columns.versions(columns.aspect(NamedAspect.of_objects(CSI_NODES)))
    assert changed[columns.row_of["a"]] > max(before)
