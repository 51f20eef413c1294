"""A pod that fits nowhere is tried once: neither what arrives while we start nor our own writes are news to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from aiohttp import web
from msgspec.structs import replace

from koordinator.api.core import Namespace
from koordinator.api.kinds import CSI_NODES, NAMESPACES, POD_DISRUPTION_BUDGETS
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import NodeCondition
from koordinator.api.volume import CSINode
from koordinator.api.workload import PodDisruptionBudget
from koordinator.scheduler.engine.pod_info import make_pod_info
from tests.in_memory_api import ApiRequest, InMemoryResponse, Writer
from tests.scheduler.fakes import make_node, make_pod
from tests.scheduler.plugins.test_nothing_left_waiting import default_profile, pending
from tests.scheduler.running_scheduler import RunningScheduler
from tests.scheduler.scheduler_api import SchedulerApi

HEARTBEAT = NodeCondition(type="Ready", status="True", last_heartbeat_time=datetime(2026, 1, 1, tzinfo=UTC))


class Late(SchedulerApi):
    """The list of one kind is answered only after all others have been, and their objects dealt with."""

    def __init__(self, plural: str) -> None:
        super().__init__()
        self._plural = plural
        self.released = asyncio.Event()

    async def respond(self, api_request: ApiRequest, request: web.BaseRequest, writer: Writer) -> InMemoryResponse:
        if api_request == ApiRequest("list", self._plural):
            await self.released.wait()
        return await super().respond(api_request, request, writer)


def populate(api: SchedulerApi) -> None:
    api.store(Namespace(metadata=ObjectMeta(name="default")), NAMESPACES)
    for name in ("a", "b"):
        api.store(make_node(name))
        api.store(CSINode(metadata=ObjectMeta(name=name)), CSI_NODES)
    api.store(pending(make_pod("huge", cpu="64"), 0))


async def attempts(api: SchedulerApi, then: Callable[[SchedulerApi], None]) -> int:
    """How often the pod was tried until the end, ``then`` having happened after the first time."""
    fixture = RunningScheduler(api, default_profile, lambda pod, view: make_pod_info(pod))
    async with fixture.running():
        if isinstance(api, Late):
            assert fixture.events.notes == []
            api.released.set()
        await fixture.until_idle(15)
        then(api)
        await fixture.until_idle(15)
    return sum(reason == "FailedScheduling" for name, reason, _ in fixture.events.notes if name == "huge")


@pytest.mark.parametrize("plural", ["namespaces", "nodes", "pods", "csinodes", "poddisruptionbudgets"])
def test_whatever_is_listed_last(plural: str) -> None:
    async def run() -> int:
        api = Late(plural)
        populate(api)
        return await attempts(api, lambda api: None)

    assert asyncio.run(run()) == 1


def beat(api: SchedulerApi) -> None:
    for node in list(api.objects("nodes").values()):
        api.store(replace(node, status=replace(node.status, conditions=[HEARTBEAT])))


def grow_too_little(api: SchedulerApi) -> None:
    api.store(make_node("a", cpu="8"))
    api.store(make_node("c", cpu="2"))


NO_NEWS: dict[str, Callable[[SchedulerApi], None]] = {
    "the nodes' heartbeats": beat,
    "nodes that are too small": grow_too_little,
    "other pods coming": lambda api: api.store(pending(make_pod("other"), None)),
    "a new namespace": lambda api: api.store(Namespace(metadata=ObjectMeta(name="other")), NAMESPACES),
    "a budget": lambda api: api.store(
        PodDisruptionBudget(metadata=ObjectMeta(name="b", namespace="default")), POD_DISRUPTION_BUDGETS
    ),
}


@pytest.mark.parametrize("then", NO_NEWS.values(), ids=NO_NEWS)
def test_whatever_happens_that_cannot_help(then: Callable[[SchedulerApi], None]) -> None:
    async def run() -> int:
        api = SchedulerApi()
        populate(api)
        return await attempts(api, then)

    assert asyncio.run(run()) == 1
