"""Final scores are 0..100; a node for which a plugin says something beyond that counts with 0, and the plugin is
reported: it is its error, or that of who has written about the node, and no other node or pod has to suffer from it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
import pytest

from koordinator.scheduler.engine.columns import Aspect, Ints, Mask, Rows
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.framework import ScorePlugin
from koordinator.scheduler.engine.handle import SchedulerServices
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import PluginOrder, Profile
from tests.scheduler.fakes import FirstChoice, describe, make_node, make_pod, make_state

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODES = [make_node(f"n{number}") for number in range(6)]


class Says(ScorePlugin):
    """A foreign plugin: it is not part of the package."""

    name = "Says"
    score_reads = (Aspect.NODE,)
    scores: Sequence[int] = ()

    def score(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        return np.array(self.scores, dtype=np.int64)[rows]


class SaysAtLast(Says):
    def score(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        return super().score(pod, state, rows) * 10**9

    def normalize(self, pod: PodInfo, state: Any, raw: Ints, feasible: Mask) -> Ints:
        return raw // 10**9


class Reports:
    def __init__(self) -> None:
        self.scores: list[tuple[str, str, int]] = []

    def unusable_score(self, plugin: str, subject: str, score: int) -> None:
        self.scores.append((plugin, subject, score))


def decide(
    kind: type[Says],
    scores: Sequence[int],
    weight: int = 1,
    nodes: int = len(NODES),
    *,
    batches: bool = True,
    reports: Reports | None = None,
) -> Placement:
    state = make_state(NODES[:nodes])
    plugin = kind(None, state.view)
    plugin.scores = scores
    order = PluginOrder(score=(("Says", weight),))
    engine = Engine(Profile("s", {"Says": plugin}, order), state, FirstChoice(), batches=batches)
    engine.handle.connect(cast("SchedulerServices", reports or Reports()))
    result = engine.decide(describe(make_pod("p")), NOW)
    assert isinstance(result, Placement)
    return result


@pytest.mark.parametrize("kind", [Says, SaysAtLast])
@pytest.mark.parametrize("wrong", [-1, 101, 2**31, -(2**33)])
@pytest.mark.parametrize("nodes", [1, 6])
@pytest.mark.parametrize("batches", [False, True])
def test_a_score_out_of_range_costs_its_node_alone(kind: type[Says], wrong: int, nodes: int, *, batches: bool) -> None:
    reports = Reports()
    top = decide(kind, [wrong, 1, 2, 3, 4, 5], nodes=nodes, batches=batches, reports=reports).top
    assert [node.score_by_plugin["Says"] for node in top] == [5, 4, 3][: len(top)] if nodes > 1 else [0]
    assert set(reports.scores) == {("Says", "n0", wrong)}


@pytest.mark.parametrize("kind", [Says, SaysAtLast])
def test_the_limits_are_in_range(kind: type[Says]) -> None:
    assert decide(kind, [0, 0, 100, 0, 0, 0]).node_name == "n2"


@pytest.mark.parametrize("weight", [1, 21_474_836, 21_474_837, 10**12])
def test_weights_of_any_size_are_counted_exactly(weight: int) -> None:
    top = decide(Says, [98, 99, 100, 97, 96, 95], weight).top
    assert [node.score_by_plugin["Says"] for node in top] == [100 * weight, 99 * weight, 98 * weight]
