"""The client without a connection does what the one with a connection does, on the same kind of server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest

from koordinator.api.kinds import NODES, POD_GROUPS, PODS, Kind
from koordinator.api.meta import Object
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client, PatchType
from koordinator.simulate.in_process_api import InProcessApi
from koordinator.simulate.in_process_client import InProcessClient
from koordinator.simulate.simulated_clock import SimulatedClock
from koordinator.simulate.snapshot_reader import take_snapshot
from tests.in_memory_api import InMemoryApi
from tests.simulate.clusters import Document, cluster, node, pod

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _new(name: str, **labels: str) -> Document:
    found = pod(name)
    found["metadata"]["labels"] = labels
    del found["status"], found["spec"]["priority"]
    return found


async def _conversation(client: Client) -> list[Any]:
    """What a client says about everything that programs do."""
    said: list[Any] = []

    async def call(work: Awaitable[Any]) -> None:
        try:
            response = await work
        except ApiStatusError as error:
            said.append((error.code, error.reason, _UID.sub("UID", error.message), error.details.name))
        else:
            said.append(_shown(response))

    await call(client.create(PODS, _new("x", app="x"), "default"))
    await call(client.create(PODS, _new("y", app="y"), "default"))
    await call(client.create(PODS, _new("x"), "default"))
    await call(client.create(PODS, {"metadata": {"name": "z"}, "spec": {"containers": []}}, "default"))
    await call(client.create(PODS, _new("lost"), "nowhere"))
    await call(client.get(PODS, "x", "default"))
    await call(client.get(PODS, "missing", "default"))
    page = await client.list(PODS, label_selector="app=y")
    said.append([item.metadata.name for item in page.items])
    page = await client.list(PODS, "default", field_selector="spec.nodeName=")
    said.append([item.metadata.name for item in page.items])
    binding = {"target": {"kind": "Node", "name": "a"}, "metadata": {"name": "x"}}
    await call(client.create(PODS, binding, "default", name="x", subresource="binding"))
    await call(client.create(PODS, binding, "default", name="x", subresource="binding"))
    status = {"status": {"phase": "Running"}}
    await call(client.patch(PODS, "x", status, PatchType.MERGE, "default", subresource="status"))
    await call(client.patch(PODS, "x", {"metadata": {"labels": {"new": "1"}}}, PatchType.STRATEGIC, "default"))
    await call(client.patch(NODES, "a", [{"op": "test", "path": "/metadata/name", "value": "b"}], PatchType.JSON))
    await call(client.delete(PODS, "y", "default", uid="another"))
    await call(client.delete(PODS, "y", "default", grace_period_seconds=0))
    await call(client.create(POD_GROUPS, {"metadata": {"name": "gang"}, "spec": {"minMember": 2}}, "default"))
    await call(client.update(POD_GROUPS, {"metadata": {"name": "gang"}, "spec": {"minMember": 3}}, "gang", "default"))
    await client.delete_collection(POD_GROUPS, "default")
    said.append([item.metadata.name for item in (await client.list(POD_GROUPS)).items])
    return said


def _shown(response: Any) -> Any:
    if not isinstance(response, Object):
        return response
    found: Document = {"kind": response.kind, "name": response.metadata.name, "labels": response.metadata.labels}
    if isinstance(response, PODS.type):
        found |= {"node": response.spec.node_name, "phase": response.status.phase, "priority": response.spec.priority}
    return found


async def _in_process(api: InMemoryApi) -> InProcessApi:
    snapshot = await take_snapshot(api.client(), "the test's cluster", api.clock.now)
    return await InProcessApi.loaded(snapshot, SimulatedClock(MOMENT), 0)


def test_both_clients_say_the_same() -> None:
    async def scenario() -> tuple[list[Any], list[Any]]:
        api = cluster([node("a")])
        loaded = await _in_process(api)
        return await _conversation(InProcessClient(loaded.environment)), await _conversation(api.client())

    without, with_connection = asyncio.run(scenario())
    assert without == with_connection
    assert len([each for each in without if isinstance(each, tuple)]) >= 7


def _watched(
    kind: Kind[Any], change: Callable[[InProcessClient], Awaitable[Any]], **options: str
) -> list[tuple[str, str]]:
    async def scenario() -> list[tuple[str, str]]:
        client = InProcessClient((await _in_process(cluster([node("a")], [pod("old")]))).environment)
        listed = await client.list(kind)
        seen: list[tuple[str, str]] = []

        async def follow() -> None:
            watch = client.watch(kind, resource_version=listed.resource_version, **options)  # type: ignore[arg-type]
            async with aclosing(watch) as events:
                async for event in events:
                    assert isinstance(event.object, Object)
                    seen.append((event.type, event.object.metadata.name))

        task = asyncio.create_task(follow())
        await SimulatedClock(MOMENT).run_ready()
        await change(client)
        await SimulatedClock(MOMENT).run_ready()
        task.cancel()
        return seen

    return asyncio.run(scenario())


async def _come_and_go(client: InProcessClient) -> None:
    await client.create(PODS, _new("new", app="web"), "default")
    await client.patch(PODS, "new", {"metadata": {"labels": {"app": "other"}}}, PatchType.MERGE, "default")
    await client.delete(PODS, "new", "default")


def test_a_watch_brings_what_changes_from_its_version_on() -> None:
    assert _watched(PODS, _come_and_go) == [("ADDED", "new"), ("MODIFIED", "new"), ("DELETED", "new")]


def test_what_leaves_a_selector_is_gone_for_its_watch() -> None:
    assert _watched(PODS, _come_and_go, label_selector="app=web") == [("ADDED", "new"), ("DELETED", "new")]


def test_what_no_api_server_has_is_not_found() -> None:
    async def scenario() -> None:
        client = InProcessClient((await _in_process(cluster([node("a")]))).environment)
        unknown = Kind("example.com", "v1", "fleets", "Fleet", Object)
        with pytest.raises(ApiStatusError) as raised:
            await client.list(unknown)
        assert raised.value.is_not_found
        with pytest.raises(ApiStatusError):
            await client.raw("GET", "/version")
        await client.close()

    asyncio.run(scenario())


def test_a_snapshot_is_served_as_it_was() -> None:
    async def scenario() -> tuple[Any, Any]:
        api = cluster([node("a")], [pod("x", "a")])
        loaded = await _in_process(api)
        return await InProcessClient(loaded.environment).get(PODS, "x", "default"), await api.client().get(
            PODS, "x", "default"
        )

    ours, theirs = asyncio.run(scenario())
    assert ours.metadata.uid == theirs.metadata.uid
    assert ours.spec == theirs.spec
