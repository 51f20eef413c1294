"""What is written on a node and when, and that nothing else is."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace

from koordinator.api.node import Node
from koordinator.api.quantity import Quantity
from koordinator.model.overcommit.amounts import ExplainedAmount, Term, published, reset
from koordinator.model.overcommit.device_resources import DeviceResources
from koordinator.model.overcommit.node_diff import NodeDiff, diff_node
from koordinator.model.overcommit.plan import Plan
from koordinator.model.overcommit.policies import CapacityPolicy
from koordinator.model.overcommit.ratios import NodeRatios
from tests.model.overcommit.node_objects import BATCH_CPU, BATCH_MEMORY, NOW, a_node
from tests.model.overcommit.patching import patched_node

AMPLIFICATION: Final = "node.koordinator.sh/resource-amplification-ratio"
NORMALIZATION: Final = "node.koordinator.sh/cpu-normalization-ratio"
ORIGIN: Final = "node.koordinator.sh/originExtendedAllocatable"
POLICY: Final = CapacityPolicy(enable=True)
RECENTLY: Final = NOW - timedelta(seconds=60)
GIBI: Final = 2**30
WHOLE: Final = '{"resources":{"kubernetes.io/batch-cpu":"50k","kubernetes.io/batch-memory":"120Gi"}}'
NONE: Final = '{"resources":{"kubernetes.io/batch-cpu":"0","kubernetes.io/batch-memory":"0"}}'


def plan(cpu: int = 50_000, memory: int = 120 * GIBI, **given: Any) -> Plan:
    amounts = (ExplainedAmount(resource=BATCH_CPU, value=cpu), ExplainedAmount(resource=BATCH_MEMORY, value=memory))
    return Plan(node="n", amounts=amounts, annotations={ORIGIN: WHOLE}, **given)


def reset_plan() -> Plan:
    amounts = (reset(BATCH_CPU, "NoNodeMetric", "why"), reset(BATCH_MEMORY, "NoNodeMetric", "why"))
    return Plan(node="n", amounts=amounts, annotations={ORIGIN: NONE})


def amplified() -> Plan:
    return replace(plan(), annotations={AMPLIFICATION: '{"cpu":1.10}'})


def stored(cpu: str = "50000", memory: str = "120Gi", origin: str | None = None, **annotations: str) -> Node:
    """A node that says it already."""
    return a_node(annotations={ORIGIN: origin or WHOLE, **annotations}, extended={BATCH_CPU: cpu, BATCH_MEMORY: memory})


def differing(node: Node, what: Plan, last: datetime | None = RECENTLY, policy: CapacityPolicy = POLICY) -> NodeDiff:
    return diff_node(node, what, policy, NOW, last)


def test_new_amounts_stand_in_both_lists_with_the_annotation() -> None:
    entries = {BATCH_CPU: "50k", BATCH_MEMORY: "120Gi"}

    assert differing(a_node(), plan()).status_patch() == {
        "metadata": {
            "annotations": {ORIGIN: WHOLE},
        },
        "status": {"allocatable": entries, "capacity": entries},
    }


def test_reset_amounts_are_removed_and_the_annotation_says_zero() -> None:
    entries = {BATCH_CPU: None, BATCH_MEMORY: None}

    assert differing(stored(), reset_plan()).status_patch() == {
        "metadata": {
            "annotations": {ORIGIN: NONE},
        },
        "status": {"allocatable": entries, "capacity": entries},
    }


@pytest.mark.parametrize(
    ("what", "last", "due"),
    [
        (plan(), RECENTLY, ""),
        (plan(cpu=55_000), RECENTLY, ""),
        (plan(cpu=55_001), RECENTLY, BATCH_CPU),
        (plan(memory=60 * GIBI), RECENTLY, BATCH_MEMORY),
        (plan(cpu=0), RECENTLY, BATCH_CPU),
        (reset_plan(), RECENTLY, BATCH_CPU),
        (plan(), NOW - timedelta(seconds=300), ""),
        (plan(), NOW - timedelta(seconds=301), "last written"),
        (plan(), None, "start of this process"),
    ],
)
def test_when_the_status_is_due(what: Plan, last: datetime | None, due: str) -> None:
    changes = differing(stored(), what, last)

    assert bool(changes.status_due) is bool(due)
    assert due in changes.status_due


def test_small_differences_are_written_once_it_has_been_long_enough() -> None:
    changes = differing(stored(), plan(cpu=50_001), None)

    assert changes.status_patch() is not None
    assert changes.allocatable == {BATCH_CPU: Quantity.from_value(50_001)}


def test_nothing_is_written_where_nothing_differs() -> None:
    assert differing(stored(), plan(), None).status_due
    assert differing(stored(), plan(), None).status_patch() is None


def test_amounts_are_written_as_they_are_published() -> None:
    cpu = published(ExplainedAmount(resource=BATCH_CPU, value=50_000), (Term("thirdPartyAllocations", -20_000),))

    assert differing(a_node(), Plan(node="n", amounts=(cpu,))).allocatable == {BATCH_CPU: Quantity.from_value(30_000)}


@pytest.mark.parametrize(
    ("before", "annotations", "labels", "due"),
    [
        ({}, {NORMALIZATION: "1.10"}, {}, NORMALIZATION),
        ({NORMALIZATION: "1.10"}, {NORMALIZATION: "1.10"}, {}, ""),
        ({NORMALIZATION: "1.10"}, {NORMALIZATION: "1.20"}, {}, NORMALIZATION),
        ({NORMALIZATION: "1.1"}, {NORMALIZATION: "1.10"}, {}, ""),
        ({NORMALIZATION: "[}"}, {NORMALIZATION: "1.10"}, {}, NORMALIZATION),
        ({}, {AMPLIFICATION: '{"cpu":1.22}'}, {}, AMPLIFICATION),
        ({AMPLIFICATION: '{"cpu":1.22}'}, {AMPLIFICATION: '{"cpu":1.22}'}, {}, ""),
        ({AMPLIFICATION: '{"cpu":1.22}'}, {AMPLIFICATION: None}, {}, AMPLIFICATION),
        ({AMPLIFICATION: '{"cpu":1.22}'}, {}, {}, ""),
        ({}, {AMPLIFICATION: None}, {}, ""),
        ({}, {}, {"node.koordinator.sh/gpu-model": "A100"}, "gpu-model"),
    ],
)
def test_when_metadata_are_due(
    before: dict[str, str], annotations: dict[str, str | None], labels: dict[str, str], due: str
) -> None:
    ratio = float(annotations.get(NORMALIZATION) or 1)
    what = Plan(node="n", ratios=NodeRatios(ratio), annotations=annotations, devices=(DeviceResources(labels=labels),))

    changes = differing(stored(**before), what)

    assert bool(changes.metadata_due) is bool(due)
    assert due in changes.metadata_due
    patch = {"annotations": annotations, "labels": labels}
    expected = {"metadata": {part: said for part, said in patch.items() if said}} if due else None
    assert changes.metadata_patch() == expected


def test_the_status_takes_metadata_along() -> None:
    changes = differing(a_node(), amplified())

    assert changes.metadata_due
    assert changes.metadata_patch() is None
    assert (changes.status_patch() or {})["metadata"]["annotations"][AMPLIFICATION] == '{"cpu":1.10}'


def test_devices_come_and_go() -> None:
    node = a_node(extended={"koordinator.sh/gpu-core": "100", "huawei.com/npu-core": "8", "koordinator.sh/rdma": "100"})
    devices = DeviceResources(
        amounts={"koordinator.sh/gpu-core": Quantity.parse("200")},
        removed=("huawei.com/npu-core", "koordinator.sh/gpu"),
    )

    changes = differing(node, Plan(node="n", devices=(devices,)))

    assert changes.allocatable == {"koordinator.sh/gpu-core": Quantity.parse("200"), "huawei.com/npu-core": None}
    assert "gpu-core" in changes.status_due or "npu-core" in changes.status_due
    after = patched_node(node, changes.status_patch())
    assert after.status.capacity["koordinator.sh/rdma"] == Quantity.parse("100")


def test_a_node_without_a_status_is_left_alone() -> None:
    changes = differing(Node(), amplified(), None)

    assert (changes.status_patch(), changes.metadata_patch()) == (None, None)


def test_fields_of_others_survive() -> None:
    node = a_node(annotations={"theirs": "a"}, labels={"theirs": "l"}, extended={"nvidia.com/gpu": "8"})

    after = patched_node(node, differing(node, plan()).status_patch())

    assert after.metadata.annotations["theirs"] == "a"
    assert after.metadata.labels == {"theirs": "l"}
    assert after.status.allocatable["nvidia.com/gpu"] == Quantity.parse("8")
    assert after.status.capacity["cpu"] == Quantity.parse("100")


@pytest.mark.parametrize("what", [plan(), plan(7, 9), amplified(), reset_plan()])
def test_what_has_been_written_is_not_written_again(what: Plan) -> None:
    node = stored(cpu="10", memory="1Gi")
    after = patched_node(node, differing(node, what).status_patch())

    again = differing(after, what, None)

    assert (again.status_patch(), again.metadata_patch()) == (None, None)
