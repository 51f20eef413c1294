"""Rows by table, and what of them is told: once, to those who may see it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from koordinator.cli.page.board import ALL, Board, Sight, Table, sees_all

NAMES = st.sampled_from(["a", "shop/web", "shop/db", "ops/web"])
STEPS = st.lists(st.tuples(NAMES, st.one_of(st.none(), st.integers(0, 3))), max_size=12)


def told(board: Board) -> dict[str, Any]:
    turn = board.turn()
    return json.loads(turn.encoded(sees_all))["tables"] if turn is not None else {}


def test_only_what_has_changed_is_told() -> None:
    table = Table("pods")
    board = Board([table, Table("nodes")])
    table.put("shop/web", {"phase": "Running"})
    assert told(board) == {"pods": {"rows": {"shop/web": {"phase": "Running"}}, "problem": "", "lacks": ""}}
    table.put("shop/web", {"phase": "Running"})
    assert told(board) == {}
    table.remove("shop/web")
    assert told(board)["pods"]["rows"] == {"shop/web": None}


def test_a_problem_is_told_when_it_begins_and_when_it_ends() -> None:
    table = Table("gangs")
    board = Board([table])
    table.problem = "no koord-scheduler runs"
    assert told(board)["gangs"]["problem"] == "no koord-scheduler runs"
    assert told(board) == {}
    table.problem = ""
    assert told(board)["gangs"]["problem"] == ""


def test_a_viewer_of_one_namespace_sees_its_rows_and_which_right_is_missing() -> None:
    table = Table("pending")
    board = Board([table])
    for key in ("shop/web", "ops/web", "of-the-cluster"):
        table.put(key, {})
    sight = Sight(everywhere=False, namespaces=frozenset({"shop"}), lacks="list pods in the namespace ops")
    found = json.loads(board.whole().encoded(lambda name: sight))["tables"]["pending"]
    assert found == {"rows": {"shop/web": {}}, "problem": "", "lacks": "list pods in the namespace ops"}


@given(STEPS, STEPS)
def test_whoever_takes_every_turn_has_what_whoever_comes_last_gets(before: Any, after: Any) -> None:
    """Of any changes in any order: the whole, then the turns, come to the same rows as the table has."""
    table = Table("t")
    board = Board([table])
    _apply(table, before)
    rows = json.loads(board.whole().encoded(sees_all))["tables"]["t"]["rows"]
    for step in after:
        _apply(table, [step])
        for key, row in told(board).get("t", {"rows": {}})["rows"].items():
            rows[key] = row
    assert {key: row for key, row in rows.items() if row is not None} == json.loads(board.whole().encoded(sees_all))[
        "tables"
    ]["t"]["rows"]


def test_all_rows_are_for_those_who_see_all() -> None:
    assert ALL.shows("of-the-cluster")
    assert not Sight(everywhere=False).shows("of-the-cluster")


def _apply(table: Table, steps: Any) -> None:
    for key, value in steps:
        if value is None:
            table.remove(key)
        else:
            table.put(key, {"value": value})
