"""Core scheduling on a real kernel: what runs on one core at the same time is of one group."""

from __future__ import annotations

import pytest

from tests.real.core_scheduling_guest import APART, FREE, TOGETHER, Phase
from tests.real.core_scheduling_kernel import kernel_with_core_scheduling
from tests.real.virtual_machine import VirtualMachine, result_in_virtual_machine

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def phases() -> dict[str, Phase]:
    machine = VirtualMachine(cpus=2, threads=2, kernel=kernel_with_core_scheduling())
    return result_in_virtual_machine("tests.real.core_scheduling_guest", machine)


@pytest.mark.parametrize("phase", [FREE, TOGETHER])
def test_pods_of_one_group_run_at_the_same_time(phase: str, phases: dict[str, Phase]) -> None:
    assert phases[phase]["cpus"] > 1.2


def test_pods_of_two_groups_never_do(phases: dict[str, Phase]) -> None:
    """Both want the whole core all the time, and have it in turn."""
    assert phases[APART]["cpus"] < 1.05
    assert phases[APART]["overlap"] < phases[TOGETHER]["overlap"] / 5
