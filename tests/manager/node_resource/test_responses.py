"""What is answered when somebody asks why a node offers what it offers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp

from koordinator.base.metrics import Metrics
from koordinator.kube.serving import HealthServer
from koordinator.manager.node_resource.explanations import PATH, Explanations, NodeExplanation, explain_handler
from koordinator.model.overcommit.abnormality import Finding, NodeHealth
from koordinator.model.overcommit.amounts import Term, explained, published, reset

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def known() -> Explanations:
    terms = (Term("capacity", 100_000), Term("safetyMargin", -40_000))
    amount = published(explained("kubernetes.io/batch-cpu", "usage", NOW, terms), (Term("cpuNormalization", 6_000),))
    gone = reset("kubernetes.io/mid-cpu", "MetricExpired", "the last report is old", NOW)
    explanations = Explanations()
    found = (Finding("FrozenReadings", "all is the same"), Finding("NegativeUsage", "less than nothing"))
    health = NodeHealth(NOW, changed_at=NOW, findings=found, well_since=NOW + timedelta(minutes=1))
    explanations.put("n1", NodeExplanation(NOW, (amount, gone), health, ("a: b",), "it is due"))
    explanations.put("n3", NodeExplanation(NOW, (amount,)))
    return explanations


def fetched(name: str) -> tuple[int, dict[str, Any]]:
    async def scenario() -> tuple[int, dict[str, Any]]:
        server = HealthServer(Metrics(), host="127.0.0.1", port=0)
        server.add_route(PATH, explain_handler(known().of))
        await server.start()
        try:
            url = f"http://127.0.0.1:{server.bound_port}/explain/node/{name}"
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                return response.status, await response.json()
        finally:
            await server.stop()

    return asyncio.run(scenario())


def test_the_sum_is_answered() -> None:
    status, document = fetched("n1")
    amount = document["amounts"][0]
    assert status == 200
    assert (amount["value"], amount["published"], amount["policy"]) == (60_000, 66_000, "usage")
    assert amount["terms"] == [
        {"name": "capacity", "amount": 100_000},
        {"name": "safetyMargin", "amount": -40_000},
    ]
    assert amount["adjustments"] == [{"name": "cpuNormalization", "amount": 6_000}]


def test_what_is_not_offered_says_why() -> None:
    _, document = fetched("n1")
    gone = document["amounts"][1]
    assert (gone["reset"], gone["sentence"]) == (
        "MetricExpired",
        "kubernetes.io/mid-cpu is not offered: the last report is old",
    )


def test_what_is_wrong_with_the_node_is_answered_with_since_when() -> None:
    _, document = fetched("n1")
    assert document["abnormal"] == [
        {"reason": "FrozenReadings", "message": "all is the same"},
        {"reason": "NegativeUsage", "message": "less than nothing"},
    ]
    assert document["abnormalSince"] == "2026-01-01T00:00:00Z"
    assert document["soundSince"] == "2026-01-01T00:01:00Z"
    assert document["problems"] == ["a: b"]


def test_a_normal_node_has_nothing_wrong() -> None:
    _, document = fetched("n3")
    assert document["abnormal"] == []
    assert not {"abnormalSince", "soundSince"} & set(document)


def test_a_node_of_which_nothing_is_known_is_not_found() -> None:
    status, document = fetched("n2")
    assert status == 404
    assert document["message"] == "nothing is known of node 'n2' here: it does not exist, or another replica leads"
