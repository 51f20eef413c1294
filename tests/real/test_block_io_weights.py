"""Weights of block I/O on a real kernel: two pods that read one disk are served in the proportion of their weights."""

from __future__ import annotations

import pytest

from tests.real.disk_readers_guest import HEAVY, LIGHT, WEIGHTS, Served
from tests.real.virtual_machine import VirtualMachine, result_in_virtual_machine


@pytest.fixture(scope="module")
def served() -> Served:
    machine = VirtualMachine(cpus=2, has_disk=True)
    return result_in_virtual_machine("tests.real.disk_readers_guest", machine)


def _share(counts: dict[str, int]) -> float:
    return counts[HEAVY] / (counts[HEAVY] + counts[LIGHT])


def test_without_weights_both_read_alike(served: Served) -> None:
    assert _share(served["without an agent"]) == pytest.approx(0.5, abs=0.15)


def test_each_reads_the_share_of_its_weight(served: Served) -> None:
    assert _share(served["with weights"]) == pytest.approx(WEIGHTS[HEAVY] / sum(WEIGHTS.values()), abs=0.1)
