"""Every evaluation ends within its budget, whatever the expression; the caller's loop does not wait for long ones."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.cluster.verbs.environment import bounded
from koordinator.model.cel.budget import INLINE, PER_CALL, Meter, allowance
from koordinator.model.cel.errors import CompileError, CostExceeded, EvaluationError, TakesLong
from koordinator.model.cel.program import Declarations, Program, compile_expression
from koordinator.model.cel.types import DYN

_DECLARED = Declarations({"x": DYN, "l": DYN, "t": DYN})
_VALUES: dict[str, Any] = {"x": 7, "l": list(range(50)), "t": "text " * 100}
_NESTED = "[0,1,2,3,4,5,6,7,8,9].all(a, " * 7 + "true" + ")" * 7
HUNGRY = [
    _NESTED,
    "lists.range(1000000000000).size() > 0",
    "t.replace('', t).replace('', t).replace('', t).size() > 0",
    "l.map(a, l.map(b, l.map(c, l.map(d, t)))).size() > 0",
    "[t, t].map(a, [t, t].map(b, t + t + t + t)).flatten(9).join(t.replace('', t)).size() > 0",
    "'%s'.format([l.map(a, l.map(b, l.map(c, t)))]).size() > 0",
    "l.all(a, l.all(b, l.all(c, l.map(d, [l, l, l]) == l.map(d, [l, l, l]))))",
    "l.all(a, l.all(b, l.all(c, l.all(d, t.matches('(a|b)*c') || true))))",
    "l.all(a, l.all(b, sets.equivalent(l.map(c, dyn([c])), l.map(c, dyn([c])))))",
    "l.all(a, l.all(b, l.map(c, dyn([l, c])).distinct().size() > 0))",
]
_WORDS = [
    "x",
    "l",
    "t",
    "1",
    "0",
    "2u",
    "1.5",
    "'a'",
    "b'a'",
    "true",
    "null",
    "[1]",
    "{'a':1}",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ".",
    "?.",
    ":",
    "?",
    "+",
    "-",
    "*",
    "/",
    "%",
    "==",
    "!=",
    "<",
    "in",
    "&&",
    "||",
    "!",
    "all",
    "exists",
    "map",
    "filter",
    "has",
    "size",
    "type",
    "optional.of",
    "orValue",
    "quantity",
    "ip",
    "split",
    "format",
    "sort",
    "lists.range",
    "transformMap",
    "a",
    "b",
    "\\",
    "`",
    '"',
    "'",
    "#",
    "dyn(x)",
    "l.map(a,",
    "t.size()>0)",
    "string",
    "int",
    "duration",
    "timestamp",
]


def _compiled(text: str) -> Program:
    return compile_expression(text, _DECLARED)


@pytest.mark.parametrize("expression", HUNGRY, ids=range(len(HUNGRY)))
def test_what_would_take_very_long_is_stopped(expression: str) -> None:
    result = _compiled(expression).evaluate(_VALUES, limit=20_000)
    assert isinstance(result.error, CostExceeded)


@given(st.lists(st.sampled_from(_WORDS), max_size=25))
def test_any_text_is_refused_or_ends(words: list[str]) -> None:
    try:
        program = _compiled(" ".join(words))
    except CompileError:
        return
    result = program.evaluate(_VALUES, limit=5_000)
    assert result.error is None or isinstance(result.error, EvaluationError)


@given(st.integers(1, 5), st.integers(0, 30), st.integers(1, 3_000))
def test_the_budget_is_never_exceeded_by_more_than_one_step(depth: int, items: int, limit: int) -> None:
    numbers = ",".join(map(str, range(items)))
    expression = f"[{numbers}].all(a, " * depth + "true" + ")" * depth
    result = _compiled(expression).evaluate({}, limit)
    assert result.cost <= limit + 10


def test_the_limit_is_that_of_the_real_server() -> None:
    assert Meter({}).limit == PER_CALL == 1_000_000


def test_what_takes_long_is_not_done_where_the_caller_waits() -> None:
    program = _compiled("l.all(a, l.all(b, a + b >= 0))")
    with allowance(INLINE), pytest.raises(TakesLong):
        program.evaluate(_VALUES)
    assert program.evaluate(_VALUES).value is True


def test_in_a_thread_it_pauses_as_often_as_the_loop_would_have_waited() -> None:
    program = _compiled("l.all(a, l.all(b, a + b >= 0))")
    pauses: list[None] = []
    with allowance(INLINE, lambda: pauses.append(None)):
        result = program.evaluate(_VALUES)
    assert result.value is True
    assert result.cost // INLINE >= len(pauses) >= result.cost // INLINE // 2


def test_several_expressions_share_what_the_caller_waits_for() -> None:
    program = _compiled("l.all(a, a >= 0)")

    def evaluate_often() -> None:
        for _ in range(INLINE):
            program.evaluate(_VALUES)

    with allowance(INLINE), pytest.raises(TakesLong):
        evaluate_often()


def test_compiling_counts_too() -> None:
    with allowance(INLINE), pytest.raises(TakesLong):
        compile_expression(" && ".join(["x == 7"] * 3_000), _DECLARED)


def test_the_loop_does_not_wait_for_what_takes_long() -> None:
    program = _compiled("l.all(a, l.all(b, a + b >= 0))")
    threads: list[str] = []

    def evaluate() -> Any:
        threads.append(threading.current_thread().name)
        return program.evaluate(_VALUES).value

    assert asyncio.run(bounded(evaluate)) is True
    assert [name.partition("_")[0] for name in threads] == ["MainThread", "expressions"]


def test_a_function_of_a_long_text_is_long_work() -> None:
    program = _compiled("t.lowerAscii() == ''")
    with allowance(INLINE), pytest.raises(TakesLong):
        program.evaluate({"t": "a" * 1_000_000})


def test_nothing_absorbs_the_end_of_the_budget() -> None:
    result = _compiled(f"{_NESTED} || true").evaluate(_VALUES, limit=1_000)
    assert isinstance(result.error, CostExceeded)


def test_a_meter_counts_work_that_costs_nothing() -> None:
    meter = Meter({})
    with pytest.raises(CostExceeded):
        meter.labour(10**9)
