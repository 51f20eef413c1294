"""CPU suppress with the default policy on a real kernel with cgroup version 2, where an empty cpuset is the parent's.

Who is held down is read from the batch processes themselves: the CPUs on which the kernel lets them run.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordinator.api.cpu_list import parse_cpu_list
from tests.real.suppressed_guest import ALLOWED_CPUS, BATCH, CPUS
from tests.real.virtual_machine import VirtualMachine, result_in_virtual_machine

_WHOLE = {"cgroupfs": frozenset(range(CPUS)), "systemd with AllowedCPUs": parse_cpu_list(ALLOWED_CPUS)}
_LEAST = 2


@pytest.fixture(scope="module")
def taken() -> dict[str, Any]:
    """What each phase of each node has left."""
    return result_in_virtual_machine("tests.real.suppressed_guest", VirtualMachine(CPUS))


def _allowed(phase: dict[str, Any]) -> frozenset[int]:
    """The CPUs of the batch processes, which all have the same, as their cgroups do."""
    shown = {*phase["allowed"].values(), *phase["effective"].values()}
    assert len(phase["allowed"]) == len(BATCH)
    assert len(shown) == 1, json.dumps(phase, indent=1)
    return parse_cpu_list(shown.pop())


@pytest.mark.parametrize("node", list(_WHOLE))
def test_best_effort_pods_give_way_to_a_busy_online_pod_and_get_their_cpus_back(
    node: str, taken: dict[str, Any]
) -> None:
    phases = taken[node]
    busy, idle = _allowed(phases["busy"]), _allowed(phases["idle"])
    assert _allowed(phases["off"]) == _WHOLE[node]
    assert len(busy) == _LEAST, json.dumps(phases["busy"], indent=1)
    assert len(idle) > _LEAST, json.dumps(phases["idle"], indent=1)
    assert busy | idle <= _WHOLE[node]
    assert _allowed(phases["off again"]) == _WHOLE[node]


@pytest.mark.parametrize("node", list(_WHOLE))
def test_what_was_never_suppressed_is_as_the_kubelet_has_made_it(node: str, taken: dict[str, Any]) -> None:
    assert set(taken[node]["off"]["own"].values()) == {""}


@pytest.mark.parametrize("node", list(_WHOLE))
def test_afterwards_there_is_the_whole_set_since_the_kernel_takes_no_empty_one(
    node: str, taken: dict[str, Any]
) -> None:
    assert {parse_cpu_list(own) for own in taken[node]["off again"]["own"].values()} == {_WHOLE[node]}
    assert taken[node]["emptied"] == "No space left on device"


def test_pods_are_suppressed_as_soon_as_the_controller_is_there(taken: dict[str, Any]) -> None:
    phases = taken["without cpuset"]
    assert set(phases["without the controller"]["own"].values()) == {"no such file"}
    assert len(_allowed(phases["with the controller"])) == _LEAST
