"""Pods that are counted when they are admitted, from the review to what is stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from koordinator.api.document import Document
from koordinator.api.kinds import ELASTIC_QUOTAS
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.informer_set import InformerSet
from koordinator.manager.options import QuotaUpdateOptions
from koordinator.manager.webhook.dispatch import Webhook
from koordinator.manager.webhook.elastic_quota.assume_cache import QuotaAssumeCache
from koordinator.manager.webhook.elastic_quota.pod_admission import CountingPodHandler, PodAdmissionSettings
from koordinator.manager.webhook.listers import watch_quotas
from koordinator.manager.webhook.metrics import WebhookMetrics
from koordinator.manager.webhook.pod.validating import PodValidatingHandler
from koordinator.manager.webhook.quota_accounts import QuotaBatches, StoredAccounts
from tests.in_memory_api import ApiRequest, Hang, InMemoryApi
from tests.manager.webhook.reviews import answered, review
from tests.model.quota_tree.quota_objects import P, quota_document

QUOTAS = (
    quota_document("a", max={"cpu": 4, "nvidia.com/gpu": 1}),
    quota_document("b", max={"cpu": 1}),
    quota_document("twice", max={"cpu": 1}),
    quota_document("twice", namespace="elsewhere", max={"cpu": 1}),
)


class Bench:
    """One pod webhook over an API server in memory; the watch shows nothing after its first list."""

    def __init__(self, settings: PodAdmissionSettings) -> None:
        clock = ManualClock()
        self.api = InMemoryApi(clock)
        self.failure: Exception | None = None
        """Of every write."""
        self.api.fault = self._fault
        for document in QUOTAS:
            self.api.put(ELASTIC_QUOTAS, document)
        client = self.api.client()
        self.informers = InformerSet(client, clock=clock)
        quotas = QuotaAssumeCache(clock.monotonic)
        watch_quotas(self.informers, "", quotas)
        accounts = StoredAccounts(client, self.informers, "")
        counting = QuotaBatches(accounts, QuotaUpdateOptions(), clock, Random(1))
        inner = PodValidatingHandler()
        handler = CountingPodHandler(inner, quotas, accounts, counting, settings)
        self.webhook = Webhook(handler, WebhookMetrics(Metrics()), clock)

    def _fault(self, request: ApiRequest, done: bool) -> Exception | None:
        if request.verb == "watch":
            return Hang()
        return self.failure if request.verb == "patch" else None

    async def refusal(self, new: Document, old: Document | None = None, *, dry_run: bool = False) -> str:
        operation = "CREATE" if old is None else "UPDATE"
        body = review(object=new, oldObject=old, operation=operation, dryRun=dry_run)
        response = answered(await self.webhook.respond(body))
        assert response["status"]["code"] == (200 if response["allowed"] else 400)
        message: str = response["status"].get("message", "")
        return message

    def metadata(self, name: str) -> Document:
        metadata: Document = self.api.document(ELASTIC_QUOTAS, name, "kube-system")["metadata"]
        return metadata

    def used(self, name: str) -> Any:
        text = self.metadata(name)["annotations"].get(f"{P}/child-request")
        return json.loads(text) if text else None

    def patches(self) -> list[Document]:
        return [json.loads(request.body) for request in self.api.requests if request.verb == "patch"]


@asynccontextmanager
async def bench(**settings: bool) -> AsyncIterator[Bench]:
    made = Bench(PodAdmissionSettings(**settings))
    async with made.informers.started(5):
        yield made


def pod(quota: str, cpu: str = "2", replace: str = "", phase: str = "", **requests: str) -> Document:
    return {
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "default",
            "labels": {f"{P}/name": quota} if quota else {},
            "annotations": {"pod.koordinator.sh/replace-resources": replace},
        },
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, **requests}}}]},
        "status": {"phase": phase},
    }


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(10):
            await scenario()

    asyncio.run(timed())


def test_pods_are_admitted_until_the_quota_is_used_up() -> None:
    async def scenario() -> None:
        async with bench() as made:
            assert await made.refusal(pod("a")) == ""
            assert await made.refusal(pod("a")) == ""
            assert made.used("a") == {"cpu": "4"}
            assert await made.refusal(pod("a")) == (
                "exceeded quota: kube-system/a, requested: cpu=2, used: cpu=4, limited: cpu=4"
            )

    run(scenario)


def test_what_is_written_holds_for_the_version_that_was_counted_from() -> None:
    async def scenario() -> None:
        async with bench() as made:
            counted_from = []
            for _ in range(2):
                counted_from.append(made.metadata("a")["resourceVersion"])
                await made.refusal(pod("a"))
            assert [patch["metadata"]["resourceVersion"] for patch in made.patches()] == counted_from

    run(scenario)


def test_a_dry_run_is_checked_and_not_counted() -> None:
    async def scenario() -> None:
        async with bench() as made:
            assert await made.refusal(pod("a"), dry_run=True) == ""
            assert (await made.refusal(pod("b"), dry_run=True)).startswith("exceeded quota: kube-system/b, ")
            assert made.patches() == []

    run(scenario)


def test_a_pod_that_is_refused_otherwise_takes_nothing() -> None:
    async def scenario() -> None:
        async with bench() as made:
            reserved = pod("a")
            reserved["metadata"]["annotations"]["scheduling.koordinator.sh/reserve-pod"] = "true"
            assert "cannot set in annotations" in await made.refusal(reserved)
            assert made.patches() == []

    run(scenario)


@pytest.mark.parametrize(
    "name", ["", "koordinator-default-quota", "koordinator-system-quota", "koordinator-root-quota"]
)
def test_quotas_of_the_system_are_not_counted(name: str) -> None:
    async def scenario() -> None:
        async with bench() as made:
            assert await made.refusal(pod(name, cpu="100")) == ""

    run(scenario)


def test_the_quota_must_be_there_exactly_once() -> None:
    async def scenario() -> None:
        async with bench() as made:
            assert await made.refusal(pod("nobody")) == "elastic quota nobody not found"
            assert await made.refusal(pod("twice")) == "more than one elastic quota twice found"

    run(scenario)


def test_pods_that_move_are_counted_where_that_is_requested() -> None:
    async def scenario() -> None:
        async with bench() as made:
            assert await made.refusal(pod("b"), pod("a")) == ""
        async with bench(on_update=True) as made:
            assert "exceeded quota: kube-system/b" in await made.refusal(pod("b"), pod("a"))
            assert await made.refusal(pod("b", cpu="9"), pod("b")) == ""

    run(scenario)


def test_replaced_resources_count_where_that_is_requested() -> None:
    async def scenario() -> None:
        replaced = pod("a", cpu="100", replace="cpu:,gpus:nvidia.com/gpu", gpus="1")
        async with bench() as made:
            assert "requested: cpu=100" in await made.refusal(replaced)
        async with bench(replaced_resources=True) as made:
            assert await made.refusal(replaced) == ""
            assert made.used("a") == {"nvidia.com/gpu": "1"}

    run(scenario)


def test_an_api_server_that_fails_refuses_the_pod_with_its_words() -> None:
    async def scenario() -> None:
        async with bench() as made:
            made.api.remove(ELASTIC_QUOTAS, "a", "kube-system")
            assert "not found" in await made.refusal(pod("a"))

    run(scenario)


def test_other_requests_pass() -> None:
    async def scenario() -> None:
        async with bench() as made:
            body = review(object=pod("nobody"), subResource="status", operation="UPDATE")
            assert answered(await made.webhook.respond(body))["allowed"]

    run(scenario)


def test_what_cannot_be_read_is_refused() -> None:
    async def scenario() -> None:
        async with bench() as made:
            response = answered(await made.webhook.respond(b"{}"))
            assert (response["allowed"], response["status"]["code"]) == (False, 400)

    run(scenario)


def test_a_failure_that_nobody_foresaw_costs_one_request() -> None:
    async def scenario() -> None:
        async with bench() as made:
            made.failure = RuntimeError("unforeseen")
            response = answered(await made.webhook.respond(review(object=pod("a"))))
            assert (response["allowed"], response["status"]["code"]) == (False, 500)
            made.failure = None
            assert await made.refusal(pod("a")) == ""

    run(scenario)
