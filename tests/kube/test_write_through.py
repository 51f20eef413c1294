"""What a program writes is in its informers with the response, and what is older is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import pytest

from koordinator.api.kinds import CONFIG_MAPS, NODES
from koordinator.base.clock import SystemClock
from koordinator.kube.client import KubeClient
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import PatchType
from tests.in_memory_api import ApiRequest, Hang, InMemoryApi
from tests.kube.fake_client import HANG, ScriptedClient, added, deleted, expired, modified, page
from tests.kube.informer_log import Bench, pod


def asynchronous(scenario: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(scenario)
    def run() -> None:
        asyncio.run(scenario())

    return run


def _no_watch(request: ApiRequest, done: bool) -> Exception | None:
    return Hang() if request.verb == "watch" else None


@asynccontextmanager
async def without_watches(*, write_through: bool = True) -> AsyncIterator[tuple[KubeClient, InformerSet]]:
    """A client and informers whose watches bring nothing."""
    async with InMemoryApi(SystemClock()).running() as api:
        api.fault = _no_watch
        client = api.client()
        informers = InformerSet(client, write_through=write_through)
        informers.informer(NODES)
        informers.informer(CONFIG_MAPS)
        informers.informer(NODES, label_selector="a=b")
        informers.informer(CONFIG_MAPS, namespace="other")
        informers.informer(CONFIG_MAPS, field_selector="metadata.name=c")
        informers.informer(CONFIG_MAPS, field_selector="metadata.name=d")
        async with informers.started(10):
            yield client, informers
        await client.close()


@asynchronous
async def test_creates_patches_and_deletions_are_in_the_cache_with_their_responses() -> None:
    async with without_watches() as (client, informers):
        nodes = informers.informer(NODES)
        assert await client.create(NODES, {"metadata": {"name": "n"}}) == nodes.get("n")
        assert await client.patch(NODES, "n", {"metadata": {"labels": {"x": "y"}}}, PatchType.MERGE) == nodes.get("n")
        status = {"status": {"capacity": {"cpu": "4"}}}
        assert await client.patch(NODES, "n", status, PatchType.MERGE, subresource="status") == nodes.get("n")
        await client.delete(NODES, "n")
        assert nodes.get("n") is None


@asynchronous
async def test_what_is_read_is_in_the_cache_too() -> None:
    async with without_watches() as (client, informers):
        await client.raw("POST", CONFIG_MAPS.path("default"), b'{"metadata": {"name": "c"}}')
        assert informers.informer(CONFIG_MAPS).get("default/c") is None
        assert await client.get(CONFIG_MAPS, "c", "default") == informers.informer(CONFIG_MAPS).get("default/c")


@asynchronous
async def test_an_object_that_ends_later_stays_with_the_time_of_its_deletion() -> None:
    async with without_watches() as (client, informers):
        await client.create(NODES, {"metadata": {"name": "n", "finalizers": ["example.com/wait"]}})
        await client.delete(NODES, "n")
        left = informers.informer(NODES).get("n")
        assert left is not None
        assert left.metadata.deletion_timestamp is not None


@asynchronous
async def test_informers_with_selectors_or_of_other_namespaces_and_dry_runs_are_left_alone() -> None:
    async with without_watches() as (client, informers):
        await client.create(NODES, {"metadata": {"name": "n", "labels": {"a": "b"}}})
        await client.create(CONFIG_MAPS, {"metadata": {"name": "c"}}, "default")
        await client.create(NODES, {"metadata": {"name": "dry"}}, dry_run=True)
        assert informers.informer(NODES).get("dry") is None
        assert len(informers.informer(NODES, label_selector="a=b")) == 0
        assert len(informers.informer(CONFIG_MAPS, namespace="other")) == 0
        named = [informers.informer(CONFIG_MAPS, field_selector=f"metadata.name={name}") for name in "cd"]
        assert [len(each) for each in named] == [1, 0]


@asynchronous
async def test_without_write_through_the_watch_alone_writes() -> None:
    async with without_watches(write_through=False) as (client, informers):
        await client.create(NODES, {"metadata": {"name": "n"}})
        assert informers.informer(NODES).get("n") is None


def played(client: ScriptedClient, write: Callable[[Bench], None]) -> list[str]:
    """What handlers see when ``write`` is called after the first list."""
    bench = Bench(client)
    client.watches[0] = [lambda: write(bench), *client.watches[0]]
    return asyncio.run(bench.play())


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([modified(pod("a", 7))], []),
        ([modified(pod("a", 8))], []),
        ([modified(pod("a", 7)), modified(pod("a", 8)), modified(pod("a", 9))], ["a@8>9"]),
        ([deleted(pod("a", 9))], ["-a@8"]),
    ],
)
def test_events_from_before_the_write_are_dropped(events: list[Any], expected: list[str]) -> None:
    client = ScriptedClient()
    client.lists.append(page(pod("a", 1), version=5))
    client.watches.append([*events, HANG])
    assert played(client, lambda bench: bench.informer.put(pod("a", 8))) == ["+a@1*", "a@1>8", *expected]


def test_what_the_watch_has_gone_past_is_not_written_any_more() -> None:
    """The object has been deleted since, in a list that never showed it."""
    bench = Bench(client := ScriptedClient())
    client.lists.append(page(version=9))
    asyncio.run(bench.play())
    bench.informer.put(pod("a", 8))
    assert bench.log.lines == []


def test_a_list_from_before_the_write_does_not_remove_it() -> None:
    client = ScriptedClient()
    client.lists += [page(version=5), page(version=7)]
    client.watches += [[expired()], [added(pod("a", 8)), HANG]]
    assert played(client, lambda bench: bench.informer.put(pod("a", 8))) == ["+a@8"]


def test_a_list_from_after_the_write_does() -> None:
    client = ScriptedClient()
    client.lists += [page(version=5), page(version=9)]
    client.watches += [[expired()], [HANG]]
    assert played(client, lambda bench: bench.informer.put(pod("a", 8))) == ["+a@8", "-a@8"]


def test_a_deletion_leaves_a_tombstone() -> None:
    client = ScriptedClient()
    client.lists += [page(pod("a", 1), version=5)]
    client.watches += [[modified(pod("a", 7)), deleted(pod("a", 8)), added(pod("a", 9, "another")), HANG]]
    assert played(client, lambda bench: bench.informer.remove("default/a", "uid-a")) == ["+a@1*", "-a@1", "+a@9"]


def test_a_deletion_of_the_object_before_leaves_its_successor() -> None:
    client = ScriptedClient()
    client.lists += [page(pod("a", 6, "second"), version=6)]
    client.watches += [[HANG]]
    assert played(client, lambda bench: bench.informer.remove("default/a", "first")) == ["+a@6*"]
