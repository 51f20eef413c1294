"""What is answered when somebody asks why a node offers what it offers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import aiohttp

from koordinator.base.metrics import Metrics
from koordinator.kube.serving import HealthServer
from koordinator.manager.node_resource.answers import PATH, explain_handler
from koordinator.manager.node_resource.explanations import Explanations, NodeExplanation
from koordinator.model.overcommit.explained_sum import Addend, explained, published, reset

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def known() -> Explanations:
    addends = (Addend("capacity", 100_000), Addend("safetyMargin", -40_000))
    amount = published(
        explained("kubernetes.io/batch-cpu", "usage", NOW, addends), (Addend("cpuNormalization", 6_000),)
    )
    gone = reset("kubernetes.io/mid-cpu", "MetricExpired", "the last report is old", NOW)
    explanations = Explanations()
    explanations.put("n1", NodeExplanation(NOW, (amount, gone), ("all is the same",), ("a: b",), "it is due"))
    return explanations


def asked(name: str) -> tuple[int, dict[str, Any]]:
    async def scenario() -> tuple[int, dict[str, Any]]:
        server = HealthServer(Metrics(), host="127.0.0.1", port=0)
        server.add_route(PATH, explain_handler(known()))
        await server.start()
        try:
            url = f"http://127.0.0.1:{server.bound_port}/explain/node/{name}"
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                return response.status, await response.json()
        finally:
            await server.stop()

    return asyncio.run(scenario())


def test_the_sum_is_answered() -> None:
    status, document = asked("n1")
    amount = document["amounts"][0]
    assert status == 200
    assert (amount["value"], amount["published"], amount["policy"]) == (60_000, 66_000, "usage")
    assert amount["addends"] == [
        {"name": "capacity", "amount": 100_000},
        {"name": "safetyMargin", "amount": -40_000},
    ]
    assert amount["adjustments"] == [{"name": "cpuNormalization", "amount": 6_000}]


def test_what_is_not_offered_says_why() -> None:
    _, document = asked("n1")
    gone = document["amounts"][1]
    assert (gone["reset"], gone["sentence"]) == (
        "MetricExpired",
        "kubernetes.io/mid-cpu is not offered: the last report is old",
    )


def test_what_is_wrong_with_the_node_is_answered() -> None:
    _, document = asked("n1")
    assert (document["abnormal"], document["problems"]) == (["all is the same"], ["a: b"])


def test_a_node_of_which_nothing_is_known_is_not_found() -> None:
    status, document = asked("n2")
    assert status == 404
    assert document["message"] == "nothing is known of node 'n2' here: it does not exist, or another replica leads"
