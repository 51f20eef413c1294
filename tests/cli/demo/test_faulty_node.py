"""The fault of the day: it begins and ends in time, and does not end before it was noticed."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeStatus
from koordinator.api.quantity import Quantity
from koordinator.api.resource_names import BATCH_CPU
from koordinator.cli.demo.day import FAULTY, FAULTY_FROM_HOUR, FAULTY_TO_HOUR
from koordinator.cli.demo.observation import Day, Mark
from koordinator.cli.demo.steps import FaultyNode
from koordinator.kube.interface import Client

NOTICED = [Mark(10.0, "NegativeUsage", 0)]


class Patches:
    """Keeps the fault that was written last of each call."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    async def patch(self, kind: object, name: str, body: dict[str, Any], *_: object) -> Node:
        assert name == FAULTY
        self.said += body["metadata"]["annotations"].values()
        return Node(metadata=ObjectMeta(name=name, resource_version=str(len(self.said))))


def said(*looks: tuple[float, list[Mark]]) -> list[Any]:
    async def scenario() -> list[Any]:
        client = Patches()
        faulty = FaultyNode(cast("Client", client))
        for hour, marks in looks:
            await faulty.follow(Day(marks={FAULTY: marks} if marks else {}), hour)
        return client.said

    return asyncio.run(scenario())


def test_nothing_happens_before_its_hour() -> None:
    assert said((FAULTY_FROM_HOUR - 0.1, [])) == []


def test_it_begins_and_ends_once() -> None:
    hours = [FAULTY_FROM_HOUR, FAULTY_FROM_HOUR + 1, FAULTY_TO_HOUR, FAULTY_TO_HOUR + 1, 24]
    assert said((hours[0], []), *((hour, NOTICED) for hour in hours[1:])) == ["negativeReadings", None]


def test_it_goes_on_until_it_was_noticed() -> None:
    assert said((FAULTY_FROM_HOUR, []), (23, [])) == ["negativeReadings"]
    assert said((FAULTY_FROM_HOUR, []), (23, []), (24, NOTICED)) == ["negativeReadings", None]


def test_what_the_faulty_node_offers_does_not_count_as_online_load() -> None:
    status = NodeStatus(allocatable={BATCH_CPU: Quantity.parse("4000")})
    day = Day()
    day.observe_batch_capacity(
        9.0, [Node(metadata=ObjectMeta(name=name), status=status) for name in (FAULTY, "node-0")]
    )
    assert [reading.batch_cpu for reading in day.batch_capacity] == [4000]
