"""Core scheduling on a real kernel: what runs on one core at the same time is of one group."""

from __future__ import annotations

import pytest

from tests.real.core_scheduling_guest import APART, FREE, TOGETHER
from tests.real.core_scheduling_kernel import kernel_with_core_scheduling
from tests.real.virtual_machine import VirtualMachine, result_in_virtual_machine

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cpus() -> dict[str, float]:
    """That two pods which never rest use together in each phase."""
    machine = VirtualMachine(cpus=2, threads=2, kernel=kernel_with_core_scheduling())
    return result_in_virtual_machine("tests.real.core_scheduling_guest", machine)


@pytest.mark.parametrize("phase", [FREE, TOGETHER])
def test_pods_of_one_group_run_at_the_same_time(phase: str, cpus: dict[str, float]) -> None:
    assert cpus[phase] > 1.2


def test_pods_of_two_groups_have_the_core_in_turn(cpus: dict[str, float]) -> None:
    assert 0.2 < cpus[APART] < 1.05
