"""Several informers run and synced together."""

from __future__ import annotations

import asyncio

import pytest

from koordinator.api.kinds import NODES, PODS
from koordinator.api.node import Node
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.informer_set import InformerSet
from tests.kube.fake_client import ScriptedClient, as_client, metadata, not_found, page
from tests.kube.informer_log import pod


def test_one_selection_has_one_informer() -> None:
    informers = InformerSet(as_client(ScriptedClient()))
    assert informers.informer(PODS) is informers.informer(PODS, indexes={"node": lambda pod: (pod.spec.node_name,)})


def test_different_selectors_have_their_own() -> None:
    informers = InformerSet(as_client(ScriptedClient()))
    assert informers.informer(PODS) is not informers.informer(PODS, label_selector="a=b")


def test_block_starts_when_all_are_in_sync() -> None:
    async def scenario() -> list[int]:
        client = ScriptedClient()
        client.lists += [
            page(pod("a", 1), version=5),
            page(Node(metadata=metadata("n", 2, namespace="")), version=5),
        ]
        informers = InformerSet(as_client(client), clock=ManualClock())
        pods, nodes = informers.informer(PODS), informers.informer(NODES)
        async with informers.started():
            return [len(pods), len(nodes)]

    assert asyncio.run(scenario()) == [1, 1]


def test_what_comes_after_another_is_not_listed_before_that_is_in_sync() -> None:
    async def scenario() -> list[str]:
        client, clock = ScriptedClient(), ManualClock()
        client.lists += [page(pod("a", 1), version=5, token="next"), page(pod("b", 2), version=5), page(version=5)]
        informers = InformerSet(as_client(client), clock=clock)
        pods = informers.informer(PODS)
        informers.informer(NODES, after=pods)
        async with informers.started():
            return [arguments["kind"].name for verb, arguments in client.calls if verb == "list"]

    assert asyncio.run(scenario()) == ["Pod", "Pod", "Node"]


def test_timeout_names_what_is_missing() -> None:
    async def scenario() -> None:
        client, clock = ScriptedClient(), ManualClock()
        client.lists.append(not_found("pods"))
        informers = InformerSet(as_client(client), clock=clock)
        informers.informer(PODS)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(informers.run())
            waiting = asyncio.ensure_future(informers.wait_synced(10))
            await clock.advance(11)
            running.cancel()
        with pytest.raises(TimeoutError, match=r"pods: the cluster does not serve pods \(v1\)"):
            await waiting

    asyncio.run(scenario())


def test_running_set_takes_no_new_selection() -> None:
    async def scenario() -> None:
        informers = InformerSet(as_client(ScriptedClient()))
        async with informers.started():
            with pytest.raises(RuntimeError, match="pods"):
                informers.informer(PODS)

    asyncio.run(scenario())


def test_metrics_count_per_informer() -> None:
    async def scenario() -> str:
        client, clock, metrics = ScriptedClient(), ManualClock(), Metrics()
        client.lists.append(page(pod("a", 1), version=5))
        informers = InformerSet(as_client(client), clock=clock, metrics=metrics)
        informers.informer(PODS)
        async with informers.started():
            return metrics.exposition()[0].decode()

    text = asyncio.run(scenario())
    assert 'informer_added_total{kind="pods",selection="pods"} 1.0' in text
    assert 'informer_objects{kind="pods",selection="pods"} 1.0' in text
    assert 'informer_seconds_since_contact{kind="pods",selection="pods"} 0.0' in text
