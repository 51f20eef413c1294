"""What is remembered about rows: as long as nothing changes there, and no longer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from koordinator.scheduler.engine.columns import Aspect, NodeColumns
from koordinator.scheduler.engine.failed_attempt import RowCache
from tests.scheduler.fakes import make_node


def make_columns(nodes: int) -> NodeColumns:
    columns = NodeColumns()
    for number in range(nodes):
        columns.set_node(make_node(f"node-{number}"))
    return columns


def test_responses_are_kept_until_their_row_changes() -> None:
    columns, cache = make_columns(2), RowCache()
    cache.results("question", columns).update({0: "first", 1: "second"})
    columns.touch(0, Aspect.PODS)
    assert cache.results("question", columns) == {1: "second"}


def test_questions_are_kept_apart() -> None:
    columns, cache = make_columns(1), RowCache()
    cache.results("question", columns)[0] = "answer"
    assert cache.results("another", columns) == {}


def test_changes_that_were_taken_back_do_not_count() -> None:
    columns, cache = make_columns(1), RowCache()
    cache.results("question", columns)[0] = "answer"
    columns.begin_simulation()
    columns.touch(0, Aspect.PODS)
    columns.end_simulation()
    assert cache.results("question", columns) == {0: "answer"}


def test_the_questions_asked_last_are_kept() -> None:
    columns, cache = make_columns(1), RowCache()
    for version in range(100):
        cache.results(version, columns)[0] = version
        cache.results("always asked", columns)[0] = "answer"
    assert cache.results("always asked", columns) == {0: "answer"}
    assert cache.results(0, columns) == {}


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=60))
def test_whatever_changes_no_response_is_older_than_its_row(steps: list[tuple[int, bool]]) -> None:
    columns, cache = make_columns(5), RowCache()
    for row, changes in steps:
        if changes:
            columns.touch(row, Aspect.PODS)
        else:
            results = cache.results("question", columns)
            for each in range(5):
                assert results.setdefault(each, columns.row_version(each)) == columns.row_version(each)
