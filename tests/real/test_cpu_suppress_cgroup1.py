"""A CPU that goes offline and returns, on a real kernel with version 1 of cgroups:
tests/koordlet/enforce/test_offline_cpus.py has more of it, on a kernel that is made after this one."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.cpu_list import parse_cpu_list
from tests.real.offline_cpu_guest import CPUS
from tests.real.virtual_machine import VirtualMachine, result_in_virtual_machine

_ALL, _REST = frozenset(range(CPUS)), frozenset(range(CPUS - 1))


@pytest.fixture(scope="module")
def phases() -> dict[str, dict[str, frozenset[int]]]:
    """The CPUs of all folders in each phase; the root's folder has no name."""
    found: dict[str, Any] = result_in_virtual_machine("tests.real.offline_cpu_guest", VirtualMachine(CPUS))
    return {name: {folder: parse_cpu_list(cpus) for folder, cpus in shown.items()} for name, shown in found.items()}


def test_the_kernel_takes_it_out_of_every_cpuset(phases: dict[str, dict[str, frozenset[int]]]) -> None:
    assert set(phases["before"].values()) == {_ALL}
    assert set(phases["offline"].values()) == {_REST}


def test_the_kernel_gives_it_back_to_the_root_alone(phases: dict[str, dict[str, frozenset[int]]]) -> None:
    returned = dict(phases["returned"])
    assert returned.pop("") == _ALL
    assert set(returned.values()) == {_REST}


def test_koordlet_gives_it_back_to_every_pod(phases: dict[str, dict[str, frozenset[int]]]) -> None:
    assert set(phases["afterwards"].values()) == {_ALL}


def test_koordlet_gives_it_back_though_it_was_offline_before_koordlet_started(
    phases: dict[str, dict[str, frozenset[int]]],
) -> None:
    assert set(phases["offline before"].values()) == {_REST}
    returned = dict(phases["returned later"])
    assert returned.pop("") == _ALL
    assert set(returned.values()) == {_REST}
    assert set(phases["in the end"].values()) == {_ALL}
