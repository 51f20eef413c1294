"""What is written on a node and when, and that nothing else is."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from koordinator.api.node import Node
from koordinator.api.quantity import Quantity
from koordinator.model.overcommit.decision import Plan
from koordinator.model.overcommit.device_resources import DeviceResources
from koordinator.model.overcommit.explained_sum import Addend, ExplainedAmount, reset
from koordinator.model.overcommit.policies import CapacityPolicy
from koordinator.model.overcommit.preparation import NodeChanges, prepare
from tests.model.overcommit.node_objects import BATCH_CPU, BATCH_MEMORY, NOW, a_node
from tests.model.overcommit.patching import patched_node

AMPLIFICATION: Final = "node.koordinator.sh/resource-amplification-ratio"
NORMALIZATION: Final = "node.koordinator.sh/cpu-normalization-ratio"
ORIGIN: Final = "node.koordinator.sh/originExtendedAllocatable"
THIRD_PARTY: Final = "node.koordinator.sh/thirdPartyAllocations"
POLICY: Final = CapacityPolicy(enable=True)
RECENTLY: Final = NOW - timedelta(seconds=60)
GIBI: Final = 2**30


def plan(cpu: int = 50_000, memory: int = 120 * GIBI, **given: Any) -> Plan:
    amounts = (ExplainedAmount(resource=BATCH_CPU, value=cpu), ExplainedAmount(resource=BATCH_MEMORY, value=memory))
    return Plan(node="n", amounts=amounts, **given)


def reset_plan() -> Plan:
    return Plan(node="n", amounts=(reset(BATCH_CPU, "NoNodeMetric", "why"), reset(BATCH_MEMORY, "NoNodeMetric", "why")))


def stored(cpu: str = "50000", memory: str = "120Gi", origin: str | None = None, **annotations: str) -> Node:
    """A node that says it already."""
    text = origin or '{"resources":{"kubernetes.io/batch-cpu":"50k","kubernetes.io/batch-memory":"120Gi"}}'
    return a_node(annotations={ORIGIN: text, **annotations}, extended={BATCH_CPU: cpu, BATCH_MEMORY: memory})


def prepared(node: Node, what: Plan, last: datetime | None = RECENTLY, policy: CapacityPolicy = POLICY) -> NodeChanges:
    return prepare(node, what, policy, NOW, last)


def test_new_amounts_stand_in_both_lists_with_the_annotation() -> None:
    entries = {BATCH_CPU: "50k", BATCH_MEMORY: "120Gi"}

    assert prepared(a_node(), plan()).status_patch() == {
        "metadata": {
            "annotations": {
                ORIGIN: '{"resources":{"kubernetes.io/batch-cpu":"50k","kubernetes.io/batch-memory":"120Gi"}}'
            }
        },
        "status": {"allocatable": entries, "capacity": entries},
    }


def test_reset_amounts_are_removed_and_the_annotation_says_zero() -> None:
    entries = {BATCH_CPU: None, BATCH_MEMORY: None}

    assert prepared(stored(), reset_plan()).status_patch() == {
        "metadata": {
            "annotations": {ORIGIN: '{"resources":{"kubernetes.io/batch-cpu":"0","kubernetes.io/batch-memory":"0"}}'}
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
    changes = prepared(stored(), what, last)

    assert bool(changes.status_due) is bool(due)
    assert due in changes.status_due


def test_small_differences_are_written_once_it_has_been_long_enough() -> None:
    changes = prepared(stored(), plan(cpu=50_001), None)

    assert changes.status_patch() is not None
    assert changes.allocatable == {BATCH_CPU: Quantity.from_value(50_001)}


def test_nothing_is_written_where_nothing_differs() -> None:
    assert prepared(stored(), plan(), None).status_due
    assert prepared(stored(), plan(), None).status_patch() is None


@pytest.mark.parametrize(
    ("ratio", "expected"), [("1.11", "1109"), ("1.00", "999"), ("0.50", "999"), ("[}", "999"), (None, "999")]
)
def test_batch_cpu_is_in_terms_of_what_a_core_is_worth(ratio: str | None, expected: str) -> None:
    changes = prepared(a_node(), plan(cpu=999, annotations={} if ratio is None else {NORMALIZATION: ratio}))

    assert str(changes.capacity[BATCH_CPU]) == expected


def test_batch_memory_is_not() -> None:
    changes = prepared(stored(), plan(25_000, annotations={NORMALIZATION: "1.20"}))

    assert changes.allocatable == {BATCH_CPU: Quantity.from_value(30_000)}


def test_adjustments_are_explained() -> None:
    node = a_node(annotations={THIRD_PARTY: allocations(cpu="10000")})

    cpu, memory = prepared(node, plan(annotations={NORMALIZATION: "1.20"})).amounts

    assert cpu.adjustments == (Addend("cpuNormalization", 10_000), Addend("thirdPartyAllocations", -10_000))
    assert (cpu.value, cpu.published) == (50_000, 50_000)
    assert (memory.adjustments, memory.published) == ((), 120 * GIBI)


def allocations(cpu: str = "10000", memory: str = "0", priority: str = "koord-batch") -> str:
    resources = f'{{"kubernetes.io/batch-cpu":"{cpu}","kubernetes.io/batch-memory":"{memory}"}}'
    return f'{{"allocations":[{{"name":"hadoop-yarn","priority":"{priority}","resources":{resources}}}]}}'


@pytest.mark.parametrize(
    ("text", "cpu", "memory"),
    [
        (allocations("10000", "10Gi"), "40k", "110Gi"),
        (allocations("60000", "120Gi"), "0", "0"),
        (allocations("10000", "10Gi", "koord-prod"), "50k", "120Gi"),
        (allocations("-10000", "-10Gi"), "50k", "120Gi"),
        (allocations("500m", "1"), "49999", str(120 * GIBI - 1)),
        ('{"allocations":[]}', "50k", "120Gi"),
        ("{]", "50k", "120Gi"),
    ],
)
def test_what_others_have_given_away_is_taken_off(text: str, cpu: str, memory: str) -> None:
    changes = prepared(a_node(annotations={THIRD_PARTY: text}), plan())

    assert {name: str(amount) for name, amount in changes.allocatable.items()} == {BATCH_CPU: cpu, BATCH_MEMORY: memory}
    assert changes.annotations[ORIGIN] == (
        '{"resources":{"kubernetes.io/batch-cpu":"50k","kubernetes.io/batch-memory":"120Gi"}}'
    )


def test_allocations_that_cannot_be_read_are_named() -> None:
    (problem,) = prepared(a_node(annotations={THIRD_PARTY: "{]"}), plan()).problems

    assert problem.plugin == "BatchResource"
    assert THIRD_PARTY in problem.text


def test_a_reset_node_takes_nothing_off() -> None:
    changes = prepared(a_node(annotations={THIRD_PARTY: "{]"}), reset_plan())

    assert (changes.problems, changes.allocatable) == ((), {})


def test_what_else_the_origin_annotation_says_is_kept() -> None:
    node = stored(origin='{"by":"hand","resources":{"kubernetes.io/mid-cpu":"7","kubernetes.io/batch-cpu":"1"}}')

    assert prepared(node, plan()).annotations[ORIGIN] == (
        '{"by":"hand","resources":{"kubernetes.io/batch-cpu":"50k",'
        '"kubernetes.io/batch-memory":"120Gi","kubernetes.io/mid-cpu":"7"}}'
    )


@pytest.mark.parametrize("text", ["{]", "[]", '{"resources":3}'])
def test_an_origin_annotation_that_makes_no_sense_is_written_anew(text: str) -> None:
    assert '"kubernetes.io/batch-cpu":"50k"' in (prepared(stored(origin=text), plan()).annotations[ORIGIN] or "")


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
    what = Plan(node="n", annotations=annotations, devices=(DeviceResources(labels=labels),))

    changes = prepared(stored(**before), what)

    assert bool(changes.metadata_due) is bool(due)
    assert due in changes.metadata_due
    patch = {"annotations": annotations, "labels": labels}
    expected = {"metadata": {part: said for part, said in patch.items() if said}} if due else None
    assert changes.metadata_patch() == expected


def test_the_status_takes_metadata_along() -> None:
    changes = prepared(a_node(), plan(annotations={NORMALIZATION: "1.10"}))

    assert changes.metadata_due
    assert changes.metadata_patch() is None
    assert (changes.status_patch() or {})["metadata"]["annotations"][NORMALIZATION] == "1.10"


def test_devices_come_and_go() -> None:
    node = a_node(extended={"koordinator.sh/gpu-core": "100", "huawei.com/npu-core": "8", "koordinator.sh/rdma": "100"})
    devices = DeviceResources(
        amounts={"koordinator.sh/gpu-core": Quantity.parse("200")},
        removed=("huawei.com/npu-core", "koordinator.sh/gpu"),
    )

    changes = prepared(node, Plan(node="n", devices=(devices,)))

    assert changes.allocatable == {"koordinator.sh/gpu-core": Quantity.parse("200"), "huawei.com/npu-core": None}
    assert "gpu-core" in changes.status_due or "npu-core" in changes.status_due
    after = patched_node(node, changes.status_patch())
    assert after.status.capacity["koordinator.sh/rdma"] == Quantity.parse("100")


def test_a_node_without_a_status_is_left_alone() -> None:
    changes = prepared(Node(), plan(annotations={NORMALIZATION: "1.10"}), None)

    assert (changes.status_patch(), changes.metadata_patch()) == (None, None)


def test_fields_of_others_survive() -> None:
    node = a_node(annotations={"theirs": "a"}, labels={"theirs": "l"}, extended={"nvidia.com/gpu": "8"})

    after = patched_node(node, prepared(node, plan()).status_patch())

    assert after.metadata.annotations["theirs"] == "a"
    assert after.metadata.labels == {"theirs": "l"}
    assert after.status.allocatable["nvidia.com/gpu"] == Quantity.parse("8")
    assert after.status.capacity["cpu"] == Quantity.parse("100")


@pytest.mark.parametrize("what", [plan(), plan(7, 9, annotations={NORMALIZATION: "1.33"}), reset_plan()])
def test_what_has_been_written_is_not_written_again(what: Plan) -> None:
    node = stored(cpu="10", memory="1Gi", **{THIRD_PARTY: allocations("3", "1")})
    after = patched_node(node, prepared(node, what).status_patch())

    again = prepared(after, what, None)

    assert (again.status_patch(), again.metadata_patch()) == (None, None)


def test_batch_cpu_is_counted_with_the_ratio_that_the_node_keeps() -> None:
    changes = prepared(a_node(), plan(kept_normalization="1.20"))

    assert str(changes.allocatable[BATCH_CPU]) == "60k"
