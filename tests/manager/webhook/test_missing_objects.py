"""Pods that come before what profiles depend on has reached the informers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from koordinator.api.kinds import CLUSTER_COLOCATION_PROFILES, NAMESPACES, PRIORITY_CLASSES
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.informer_set import InformerSet
from koordinator.manager.webhook.dispatch import Webhook
from koordinator.manager.webhook.elastic_quota.assume_cache import QuotaAssumeCache
from koordinator.manager.webhook.listers import ProfileLister, QuotaTreeLister
from koordinator.manager.webhook.metrics import WebhookMetrics
from koordinator.manager.webhook.missing_objects import MissingObjects
from koordinator.manager.webhook.pod.mutating import PodMutatingHandler
from tests.in_memory_api import ApiRequest, Hang, InMemoryApi
from tests.manager.webhook.reviews import answered, review

PROFILE = {
    "metadata": {"name": "p"},
    "spec": {
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "labels": {"touched": "yes"},
        "priorityClassName": "gold",
    },
}
TOUCHED = {"op": "add", "path": "/metadata/labels/touched", "value": "yes"}


class Admitting:
    """A webhook on an API server whose watches bring nothing."""

    def __init__(self, api: InMemoryApi, webhook: Webhook) -> None:
        self.api = api
        self._webhook = webhook

    async def admit(self, namespace: str = "new") -> dict[str, Any]:
        return answered(await self._webhook.respond(review(namespace=namespace)))

    def add_namespace(self, name: str = "new", **labels: str) -> None:
        self.api.put(NAMESPACES, {"metadata": {"name": name, "labels": labels}})

    def reads(self) -> Counter[str]:
        return Counter(each.name for each in self.api.requests if each.verb == "get")


def _no_watch(request: ApiRequest, done: bool) -> Exception | None:
    return Hang() if request.verb == "watch" else None


@asynccontextmanager
async def admitting() -> AsyncIterator[tuple[Admitting, ManualClock]]:
    clock = ManualClock()
    async with InMemoryApi(clock).running() as api:
        api.put(CLUSTER_COLOCATION_PROFILES, PROFILE)
        api.fault = _no_watch
        client = api.client()
        informers = InformerSet(client, clock=clock, random=Random(1))
        quotas = QuotaAssumeCache(clock.monotonic)
        handler = PodMutatingHandler(ProfileLister(informers), QuotaTreeLister(informers, "", quotas), lambda: 0)
        webhook = Webhook(handler, WebhookMetrics(Metrics()), clock, MissingObjects(client, clock))
        async with informers.started():
            yield Admitting(api, webhook), clock
        await client.close()


def test_a_pod_that_comes_right_after_its_namespace_and_its_class_is_changed() -> None:
    async def scenario() -> None:
        async with admitting() as (made, _):
            made.add_namespace(team="a")
            made.api.put(PRIORITY_CLASSES, {"metadata": {"name": "gold"}, "value": 7})
            responses = [await made.admit() for _ in range(3)]
            assert [each["allowed"] for each in responses] == [True, True, True]
            assert TOUCHED in responses[0]["patch"]
            assert made.reads() == {"new": 1, "gold": 1}

    asyncio.run(scenario())


def test_pods_that_come_together_cost_one_request() -> None:
    async def scenario() -> None:
        async with admitting() as (made, _):
            made.add_namespace(team="b")
            responses = await asyncio.gather(*(made.admit() for _ in range(20)))
            assert all(each["allowed"] and "patch" not in each for each in responses)
            assert made.reads() == {"new": 1}

    asyncio.run(scenario())


def test_a_class_that_does_not_exist_is_not_looked_for_again_and_again() -> None:
    async def scenario() -> None:
        async with admitting() as (made, clock):
            made.add_namespace(team="a")
            refused = [await made.admit() for _ in range(20)][-1]
            assert 'PriorityClass.scheduling.k8s.io "gold" not found' in refused["status"]["message"]
            assert made.reads()["gold"] == 1
            await clock.advance(6)
            made.api.put(PRIORITY_CLASSES, {"metadata": {"name": "gold"}, "value": 7})
            assert (await made.admit())["allowed"]

    asyncio.run(scenario())


def test_an_api_server_that_does_not_respond_costs_five_seconds() -> None:
    async def scenario() -> None:
        async with admitting() as (made, clock):
            made.api.fault = lambda request, done: Hang()
            admission = asyncio.ensure_future(made.admit())
            await clock.advance(5)
            assert "try again" in (await admission)["status"]["message"]

    asyncio.run(scenario())
