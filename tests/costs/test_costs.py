"""What the programs cost, in calls, is what is recorded: a change that costs more says so, on the busiest machine."""

from __future__ import annotations

import pytest

from tests.costs.figures import LESS, MORE, Cost, complaint
from tests.costs.measure import PROGRAMS, measured
from tests.costs.recorded_costs import PYTHON, read_costs, recorded_pythons


@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_costs_more_than_is_recorded(program: str) -> None:
    recorded = read_costs(program, PYTHON)
    record = f"python -m tests.costs.record {program}"
    if not recorded:
        pytest.skip(f"recorded with Python {', '.join(recorded_pythons(program))}, and this is {PYTHON}: {record}")
    now = measured(program)
    wrong = [text for name, cost in now.items() if (text := complaint(name, cost, recorded.get(name), record))]
    assert wrong == [], "\n".join(wrong)
    assert now.keys() == recorded.keys()


@pytest.mark.parametrize("python", recorded_pythons("scheduler"))
def test_a_pod_costs_the_same_on_ten_times_as_many_nodes(python: str) -> None:
    """In what is recorded, which is what is measured."""
    recorded = read_costs("scheduler", python)
    few, many = recorded["equal pods"].calls, recorded["equal pods, 2000 nodes"].calls
    assert many <= few * (1 + MORE)


def _cost(calls: float, **by_function: float) -> Cost:
    return Cost(calls, by_function)


def test_what_grows_is_named_with_what_has_grown() -> None:
    text = complaint("pods", _cost(104, decide=60, bind=44), _cost(100, decide=50, bind=50), "record")
    assert "104.0 calls instead of 100.0, +4.0%" in text
    assert "+10.00  50.00 -> 60.00  decide" in text
    assert "bind" not in text


@pytest.mark.parametrize("calls", [100 * (1 + MORE), 100, 100 * (1 - LESS)])
def test_small_changes_are_no_matter(calls: float) -> None:
    assert complaint("pods", _cost(calls), _cost(100), "record") == ""


def test_a_gain_is_to_be_recorded() -> None:
    assert complaint("pods", _cost(89), _cost(100), "record it").endswith("To keep the gain: record it")


def test_a_shape_that_is_new_is_to_be_recorded() -> None:
    assert "nothing is recorded" in complaint("pods", _cost(89), None, "record it")
