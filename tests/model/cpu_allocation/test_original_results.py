"""The same CPUs as the Go original gives, in situations that it was queried about once (recorder.go)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from koordinator.api.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.model.cpu_allocation.accumulator import (
    ExclusivePolicy,
    NotEnoughCPUsError,
    Preferences,
    take_preferred,
)
from koordinator.model.cpu_allocation.topology import BindPolicy, cpu_mask, cpus_of
from tests.model.cpu_allocation.machines import machine

_CASES: Final[list[dict[str, Any]]] = json.loads((Path(__file__).parent / "original_results.json").read_text())
_PARTS: Final = 8


def _taken(case: dict[str, Any]) -> tuple[str, str]:
    def mask(field: str) -> int:
        return cpu_mask(parse_cpu_list(case.get(field, "")))

    *shape, interleaved = case["shape"]
    exclusive = ExclusivePolicy.NONE if case["exclusive"] == "None" else ExclusivePolicy(case["exclusive"])
    others = {ExclusivePolicy.CORE: "held_by_core", ExclusivePolicy.NUMA_NODE: "held_by_numa_node"}.get(exclusive, "")
    wish = Preferences(BindPolicy(case["bind"]), exclusive, mask(others), case["strategy"] == "MostAllocated")
    topology = machine(*shape, interleaved=bool(interleaved))
    try:
        taken = take_preferred(topology, mask("available"), mask("preferred"), case["count"], wish)
    except NotEnoughCPUsError as error:
        return "", str(error)
    return format_cpu_list(cpus_of(taken)), ""


@pytest.mark.parametrize("part", range(_PARTS))
def test_the_same_cpus_are_taken(part: int) -> None:
    cases = _CASES[part::_PARTS]

    different = [case for case in cases if _taken(case) != (case["taken"], case.get("error", ""))]

    assert different == []
