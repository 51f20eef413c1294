from __future__ import annotations

import pytest

from benchmarks.cases import CASES, Requirement
from benchmarks.figures import Figures, Ratios, growth_exponent, median, rate, ratios, requirements_met


def figures(pods_per_second: float, cpu: float = 1.0, memory: float = 100.0) -> Figures:
    return Figures(pods_per_second, cpu, cpu + 1, 1.0, memory, 10, 1000, 5.0, 1, 0.0)


def test_the_rate_leaves_out_the_first_and_the_last_tenth() -> None:
    steady = [10 + number / 50 for number in range(100)]
    slow_ends = [0.0, *steady[1:99], 1000.0]
    assert rate(slow_ends) == pytest.approx(50)


def test_moments_may_come_in_any_order() -> None:
    assert rate(number / 50 for number in reversed(range(100))) == pytest.approx(50)


def test_the_median_is_taken_figure_by_figure() -> None:
    found = median([figures(1, memory=30), figures(2, memory=10), figures(9, memory=20)])
    assert (found.pods_per_second, found.peak_mebibytes) == (2, 20)


def test_ratios_are_ours_to_the_others() -> None:
    found = ratios(figures(600, 1.0, 50), figures(100, 9.0, 200), figures(800), figures(1000))
    assert found == Ratios(6.0, round(1 / 9, 3), 0.2, 0.25, 0.75, 0.6, 1.0)


def test_without_the_original_only_the_share_of_binding_is_known() -> None:
    assert ratios(figures(600), None, figures(800), None) == Ratios(of_binding=0.75)


def test_without_ours_nothing_is_known() -> None:
    assert ratios(None, figures(1), figures(1), figures(1)) == Ratios()


def test_rates_must_be_high_and_costs_low() -> None:
    required = Requirement(2, 0.5, 1.0, 0.8)
    assert set(requirements_met(Ratios(2.0, 0.5, 0.9, 1.0, 0.8), required).values()) == {True}
    assert set(requirements_met(Ratios(1.9, 0.6, 0.9, 1.1, 0.7), required).values()) == {False}


def test_what_is_not_required_or_not_measured_is_not_compared() -> None:
    assert requirements_met(Ratios(1.5, 0.5, 0.5, 2.0, 0.1), Requirement(1)) == {"pods_per_second": True}
    assert requirements_met(Ratios(), Requirement(1)) == {}


@pytest.mark.parametrize(("power", "factor"), [(0.0, 7.0), (1.0, 3.0), (2.0, 0.1)])
def test_the_growth_exponent_is_the_power_whatever_the_factor(power: float, factor: float) -> None:
    sizes = [1000, 2000, 5000, 20_000]
    assert growth_exponent(sizes, [factor * size**power for size in sizes]) == pytest.approx(power)


def test_cases_are_found_by_their_names() -> None:
    assert all(case.name == name for name, case in CASES.items())
