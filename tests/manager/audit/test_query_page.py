"""What the endpoint of the audit takes, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import pytest
from multidict import CIMultiDict

from koordinator.api.audit_answer import AuditAnswer
from koordinator.kube.pages import Request, Response
from koordinator.manager.audit.query_page import audit_page
from koordinator.manager.audit.store import Query


def ask(query: str, *, leads: bool = True) -> tuple[Response, list[Query]]:
    asked: list[Query] = []

    async def find(query: Query) -> AuditAnswer | None:
        asked.append(query)
        return AuditAnswer() if leads else None

    request = Request.to("GET", f"/audit/records?{query}", CIMultiDict())

    async def respond() -> Response:
        return await audit_page(find)(request)

    return asyncio.run(respond()), asked


def test_every_parameter_narrows_the_query() -> None:
    response, asked = ask(
        "pod=shop/web&uid=u&namespace=shop&node=n1&program=koordlet&action=evicted&cause=MemoryEvict&since=2026-01-01T01:00:00%2B01:00"
        "&until=2026-01-02T00:00:00Z&limit=3&next=17.4"
    )
    since, until = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    expected = Query("shop/web", "u", "shop", "n1", "koordlet", "evicted", "MemoryEvict", since, until, (17, 4), 3)
    assert (response.status, asked) == (200, [expected])


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("pods=web", "pods: there is no such parameter"),
        ("pod=web", "pod: 'web' is not NAMESPACE/NAME"),
        ("action=killed", "action: 'killed' is not one of evicted"),
        ("since=yesterday", "since: 'yesterday' is not a time"),
        ("until=0001-01-01T00:00:00%2B23:00", "until: "),
        ("limit=0", "limit: '0' is not a number from 1 to 1000"),
        ("limit=9999", "limit: "),
        ("next=1", "next: '1' is not"),
        (f"node={'n' * 600}", "node: at most 512 characters"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_named(query: str, problem: str) -> None:
    response, asked = ask(query)
    assert (response.status, asked) == (400, [])
    assert json.loads(response.body)["message"].startswith(problem)


def test_a_replica_that_does_not_lead_says_so() -> None:
    response, _ = ask("", leads=False)
    assert response.status == 503
