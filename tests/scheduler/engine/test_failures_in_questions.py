"""A plugin that fails while columns show what might be: they show what is when its error comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import pytest

from koordinator.api.resource_names import CPU
from koordinator.scheduler.engine.columns import Aspect, Rows
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.framework import PluginError, Reason
from koordinator.scheduler.engine.framework_hooks import FilterTransformer
from koordinator.scheduler.engine.journal import Adjustment
from koordinator.scheduler.engine.plugin_forms import RowFilterPlugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from tests.scheduler.engine.extended import NOW, Shared, decide, engine_with
from tests.scheduler.fakes import FirstChoice, describe, make_node, make_pod, make_profile, make_state


class CountsPods(RowFilterPlugin):
    """At most two pods a node; cannot count to one."""

    name = "CountsPods"
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.PODS,)
    from_columns = True

    def filter_one(self, pod: PodInfo, state: Any, row: int) -> int:
        count = self.view.columns.requested[row, 3]
        if count == 1:
            raise ArithmeticError("one is too hard")
        return int(count >= 2)

    def reasons(self, pod: PodInfo, state: Any, code: int) -> Sequence[Reason]:
        return (Reason("too many pods"),)


def test_a_filter_that_fails_while_victims_are_chosen_leaves_the_columns_as_they_are() -> None:
    state = make_state([make_node("a")])
    base = make_profile(state.view, preempts=True)
    order = replace(base.order, filter=("CountsPods",))
    plugins = {**base.plugins, "CountsPods": CountsPods(None, state.view)}
    engine = Engine(Profile(base.scheduler_name, plugins, order), state, FirstChoice())
    for name in ("p", "q"):
        state.set_pod(describe(make_pod(name)), "a")
    with pytest.raises(PluginError, match="one is too hard"):
        engine.decide(describe(make_pod("vip", priority=10)), NOW)
    taken = {name: requested for name, (requested, _) in state.view.columns.numbers[0].by_name().items()}
    assert taken == {"cpu": 2000, "memory": 2 << 30, "ephemeral-storage": 0, "pods": 2}


class Adjusts(Shared, FilterTransformer):
    name = "Adjusts"
    response: ClassVar[Mapping[int, Adjustment]] = {}

    def before_filter(self, pod: PodInfo, rows: Rows) -> Mapping[int, Adjustment]:
        return self.response


_ALLOWED: Final = "allowed are names of resources and whole numbers"


@pytest.mark.parametrize(
    ("row", "resource", "amount", "message"),
    [
        (7, CPU, 1, "plugin Adjusts adjusts row 7, which does not exist: there are 2 rows"),
        (1, 99, 1, f"plugin Adjusts adjusts the resource 99 of row 1 by 1: {_ALLOWED}"),
        (1, CPU, "1", f"plugin Adjusts adjusts the resource 'cpu' of row 1 by '1': {_ALLOWED}"),
    ],
)
def test_an_adjustment_that_cannot_be_made_is_not_begun(row: int, resource: Any, amount: Any, message: str) -> None:
    engine, state, plugin = engine_with(Adjusts, point="filter")
    type(plugin).response = {0: Adjustment({CPU: 500}, (500, 0)), row: Adjustment({CPU: 500, resource: amount})}
    with pytest.raises(PluginError) as caught:
        decide(engine)
    assert str(caught.value) == message
    assert not state.view.columns.requested[:2].any()
