from __future__ import annotations

import pytest

from koordinator.api.priority import PriorityClass
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import (
    BATCH_CPU,
    CPU,
    DEPRECATED_BATCH_NAMES,
    FREE_CPU,
    GPU_CORE,
    MEMORY,
    MID_MEMORY,
    extended_name,
    priority_of_extended,
    with_current_names,
)

_ONE, _TWO = Quantity.parse("1"), Quantity.parse("2")


@pytest.mark.parametrize(
    ("name", "priority", "expected"),
    [
        (CPU, PriorityClass.BATCH, BATCH_CPU),
        (MEMORY, PriorityClass.MID, MID_MEMORY),
        (CPU, PriorityClass.FREE, FREE_CPU),
        (CPU, PriorityClass.PROD, CPU),
        (CPU, PriorityClass.NONE, CPU),
        (GPU_CORE, PriorityClass.BATCH, ""),
        (GPU_CORE, PriorityClass.PROD, GPU_CORE),
    ],
)
def test_the_priority_class_decides_the_resource(name: str, priority: PriorityClass, expected: str) -> None:
    assert extended_name(name, priority) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [(BATCH_CPU, PriorityClass.BATCH), (MID_MEMORY, PriorityClass.MID), (CPU, PriorityClass.NONE)],
)
def test_an_extended_resource_belongs_to_a_priority_class(name: str, expected: PriorityClass) -> None:
    assert priority_of_extended(name) is expected


def test_old_names_are_replaced() -> None:
    renamed = with_current_names({"koordinator.sh/batch-cpu": _ONE, "kubernetes.io/gpu-core": _TWO, CPU: _ONE})
    assert renamed == {BATCH_CPU: _ONE, GPU_CORE: _TWO, CPU: _ONE}


def test_an_old_name_stays_beside_the_new_one() -> None:
    both = {"koordinator.sh/batch-cpu": _ONE, BATCH_CPU: _TWO}
    assert with_current_names(both) == both


def test_resources_without_old_names_are_not_copied() -> None:
    resources = {CPU: _ONE}
    assert with_current_names(resources) is resources


def test_quotas_rename_batch_resources_only() -> None:
    gpu = {"kubernetes.io/gpu": _ONE}
    assert with_current_names(gpu, DEPRECATED_BATCH_NAMES) is gpu
