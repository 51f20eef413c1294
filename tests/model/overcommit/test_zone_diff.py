"""What is written on the zones of a NodeResourceTopology and when, and that nothing else is."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import jsonpatch
import pytest

from koordinator.api.codec import convert, to_document
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.model.overcommit.amounts import ExplainedAmount, Term, published, reset
from koordinator.model.overcommit.batch import ZoneBatch
from koordinator.model.overcommit.node_diff import ZoneDiff, diff_zones
from koordinator.model.overcommit.plan import Plan
from koordinator.model.overcommit.policies import CapacityPolicy
from tests.model.overcommit.node_objects import BATCH_CPU, BATCH_MEMORY, NOW, a_topology
from tests.model.overcommit.patching import patched_topology

TOPOLOGY: Final = a_topology(("50", "200Gi"), ("50", "180Gi"))
POLICY: Final = CapacityPolicy(enable=True)
RECENTLY: Final = NOW - timedelta(seconds=60)
WHOLE: Final = (ExplainedAmount(resource=BATCH_CPU), ExplainedAmount(resource=BATCH_MEMORY))
GIGA: Final = 10**9
FIELDS: Final = ("capacity", "allocatable", "available")


def plan(*zones: tuple[int, int]) -> Plan:
    batches = tuple(
        ZoneBatch(
            f"node-{number}",
            ExplainedAmount(resource=BATCH_CPU, value=cpu),
            ExplainedAmount(resource=BATCH_MEMORY, value=memory),
        )
        for number, (cpu, memory) in enumerate(zones)
    )
    return Plan(node="n", amounts=WHOLE, zones=batches)


TWO: Final = plan((25_000, 62 * GIGA), (25_000, 58 * GIGA))


def differing(topology: NodeResourceTopology, what: Plan, last: datetime | None = RECENTLY) -> ZoneDiff:
    return diff_zones(topology, what, POLICY, NOW, last)


def written(topology: NodeResourceTopology, what: Plan) -> NodeResourceTopology:
    return patched_topology(topology, differing(topology, what, None).operations)


def entries(topology: NodeResourceTopology) -> list[list[tuple[str, int, int, int]]]:
    return [
        [(info.name, info.capacity.value, info.allocatable.value, info.available.value) for info in zone.resources]
        for zone in topology.zones
    ]


def three(name: str, amount: int) -> tuple[str, int, int, int]:
    return name, amount, amount, amount


def test_new_amounts_take_their_place_by_name() -> None:
    assert entries(written(TOPOLOGY, TWO)) == [
        [three("cpu", 50), three(BATCH_CPU, 25_000), three(BATCH_MEMORY, 62 * GIGA), three("memory", 200 * 2**30)],
        [three("cpu", 50), three(BATCH_CPU, 25_000), three(BATCH_MEMORY, 58 * GIGA), three("memory", 180 * 2**30)],
    ]


def test_amounts_are_written_as_they_are_published() -> None:
    whole = plan((25_000, 62 * GIGA)).zones[0]
    cpu = published(whole.cpu, (Term("cpuNormalization", 2_750),))

    after = entries(written(TOPOLOGY, Plan(node="n", amounts=WHOLE, zones=(whole._replace(cpu=cpu),))))

    assert after[0][1:3] == [three(BATCH_CPU, 27_750), three(BATCH_MEMORY, 62 * GIGA)]


@pytest.mark.parametrize(
    ("what", "last", "due"),
    [
        (TWO, RECENTLY, ""),
        (plan((25_000, 62 * GIGA), (27_500, 58 * GIGA)), RECENTLY, ""),
        (plan((25_000, 62 * GIGA), (27_501, 58 * GIGA)), RECENTLY, "node-1"),
        (plan((25_000, 62 * GIGA)), RECENTLY, "node-1"),
        (TWO, NOW - timedelta(seconds=301), "last written"),
        (TWO, None, "last written"),
    ],
)
def test_when_zones_are_due(what: Plan, last: datetime | None, due: str) -> None:
    changes = differing(written(TOPOLOGY, TWO), what, last)

    assert bool(changes.due) is bool(due)
    assert due in changes.due


def test_small_differences_are_written_once_it_has_been_long_enough() -> None:
    stored = written(TOPOLOGY, TWO)
    what = plan((25_001, 62 * GIGA), (25_000, 58 * GIGA))

    assert differing(stored, what).operations == ()
    assert entries(written(stored, what))[0][1] == three(BATCH_CPU, 25_001)


def test_zones_of_a_degraded_node_offer_nothing() -> None:
    degraded = Plan(node="n", amounts=(reset(BATCH_CPU, "MetricExpired", "old"),))

    after = written(written(TOPOLOGY, TWO), degraded)

    assert [zone[1:3] for zone in entries(after)] == [[three(BATCH_CPU, 0), three(BATCH_MEMORY, 0)]] * 2
    assert differing(after, degraded).due == ""
    assert differing(TOPOLOGY, degraded, None).operations == ()


def test_zones_are_left_alone_where_batch_is_not_in_hand() -> None:
    assert differing(written(TOPOLOGY, TWO), Plan(node="n"), None) == ZoneDiff()


def test_what_has_been_written_is_not_written_again() -> None:
    assert differing(written(TOPOLOGY, TWO), TWO, None).operations == ()


def test_a_zone_without_resources_gets_them() -> None:
    bare = convert({"metadata": {"name": "n"}, "zones": [{"name": "node-0", "type": "Node"}]}, NodeResourceTopology)

    assert entries(written(bare, plan((5, 7)))) == [[three(BATCH_CPU, 5), three(BATCH_MEMORY, 7)]]


def test_what_others_say_of_zones_survives() -> None:
    document: dict[str, Any] = to_document(TOPOLOGY)
    document["zones"][0]["costs"] = [{"name": "node-1", "value": 21}]
    document["zones"][1]["unheardOf"] = {"a": 1}

    after: Any = jsonpatch.apply_patch(document, list(differing(TOPOLOGY, TWO, None).operations))

    assert after["zones"][0]["costs"] == [{"name": "node-1", "value": 21}]
    assert after["zones"][1]["unheardOf"] == {"a": 1}


def test_entries_that_are_there_twice_are_removed() -> None:
    document = to_document(TOPOLOGY)
    ours, theirs = ({"name": name, **dict.fromkeys(FIELDS, "7")} for name in (BATCH_CPU, "vendor/x"))
    document["zones"][0]["resources"] += [ours, theirs, ours, ours, theirs]

    after = written(convert(document, NodeResourceTopology), TWO)

    assert [name for name, *_ in entries(after)[0]] == [
        "cpu", BATCH_MEMORY, "memory", BATCH_CPU, "vendor/x", "vendor/x"
    ]  # fmt: skip
    assert entries(after)[0][3] == three(BATCH_CPU, 25_000)
