"""When reports expire: each row once, at its last moment, in memory that is bounded by the rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.kinds import NODE_METRICS
from koordinator.api.meta import ObjectMeta
from koordinator.api.nodemetric import NodeMetric, NodeMetricStatus
from koordinator.scheduler.configuration.koordinator_arguments import LoadAwareSchedulingArgs
from koordinator.scheduler.plugins.expirations import Expirations
from koordinator.scheduler.plugins.load_aware.plugin import LoadAwareScheduling
from tests.scheduler.fakes import make_node, make_state

ROWS = 4
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, ROWS - 1), st.integers(0, 50)),
        st.tuples(st.just("discard"), st.integers(0, ROWS - 1), st.just(0)),
        st.tuples(st.just("due"), st.just(0), st.integers(0, 50)),
    ),
    max_size=80,
)


@given(STEPS)
def test_a_row_is_due_once_at_the_moment_that_was_set_last(steps: list[tuple[str, int, int]]) -> None:
    expirations, moments = Expirations[int](), dict[int, int]()
    for step, row, moment in steps:
        if step == "set":
            expirations.set(row, moment)
            moments[row] = moment
        elif step == "discard":
            expirations.discard(row)
            moments.pop(row, None)
        else:
            expected = {each for each, when in moments.items() if when <= moment}
            assert sorted(expirations.due(moment)) == sorted(expected)
            moments = {each: when for each, when in moments.items() if each not in expected}
        assert moments == {} or expirations.next is not None
        assert expirations.next is None or expirations.next <= min(moments.values(), default=50)


def test_rows_whose_moment_moves_to_and_fro_take_no_more_capacity() -> None:
    expirations = Expirations[int]()
    for number in range(10_000):
        expirations.set(number % ROWS, 1e6 - number if number % 3 else 1e6 + number)
    assert len(expirations) <= 2 * ROWS + 64


def test_a_standby_that_never_decides_holds_one_moment_a_node() -> None:
    """Nobody asks what has expired, and reports go on."""
    state = make_state()
    plugin = LoadAwareScheduling(LoadAwareSchedulingArgs(), state.view)
    state.add_event_handlers([plugin])
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    for node in range(ROWS):
        state.set_node(make_node(f"n{node}"))
    for minute in range(500):
        state.view.now = begin + timedelta(minutes=minute)
        for node in range(ROWS):
            status = NodeMetricStatus(update_time=state.view.now)
            state.set_node_object(
                NODE_METRICS.name, f"n{node}", NodeMetric(metadata=ObjectMeta(name=f"n{node}"), status=status)
            )
    assert len(plugin.expirations) == ROWS
    for node in range(ROWS):
        state.remove_node(f"n{node}")
    state.set_node(make_node("another"))
    assert plugin.expirations.due(begin.timestamp() * 2) == []
