"""The tables of a cluster, kept current by what its API says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

import pytest

from koordinator.api.kinds import (
    DEVICES,
    DRAIN_NODES,
    ELASTIC_QUOTAS,
    NODE_METRICS,
    NODES,
    POD_MIGRATION_JOBS,
    PODS,
    RESERVATIONS,
)
from koordinator.cli.page.board import Board, sees_all
from koordinator.cli.page.feed import Feed
from koordinator.cli.page.pod_list import PodList
from koordinator.cli.usage import reading_of, usage_of_cluster, usage_of_nodes, usage_of_pods
from koordinator.kube.errors import ApiStatusError
from tests.in_memory_api import InMemoryApi
from tests.waiting import wait_for

Tables = dict[str, Any]


class Watched:
    """A feed that runs, and what its viewers would have."""

    def __init__(self, api: InMemoryApi, feed: Feed) -> None:
        self.api = api
        self.feed = feed
        self.board = Board([*feed.tables.values()])

    def tables(self) -> Tables:
        self.feed.turn()
        found: Tables = json.loads(self.board.whole().encoded(sees_all))["tables"]
        return found

    def rows(self, table: str) -> dict[str, Any]:
        found: dict[str, Any] = self.tables()[table]["rows"]
        return found


@asynccontextmanager
async def watched(api: InMemoryApi) -> AsyncIterator[Watched]:
    feed = Feed(api.client(), api.clock)
    async with feed.informers.started():
        yield Watched(api, feed)


def story(told: Callable[[Watched], Awaitable[None]]) -> None:
    async def tell() -> None:
        api = InMemoryApi()
        api.put(NODES, node("n1"))
        api.put(PODS, pod("web", "n1", 9500, cpu="2"))
        api.put(PODS, pod("spark", "n1", 5500, **{"kubernetes.io/batch-cpu": "1500"}))
        api.put(NODE_METRICS, metric("n1", {"web": "500m", "spark": "1200m"}))
        async with watched(api) as found:
            await told(found)

    asyncio.run(tell())


def node(name: str, **status: Any) -> dict[str, Any]:
    amounts = {"cpu": "16", "memory": "64Gi", "kubernetes.io/batch-cpu": "8000", "kubernetes.io/batch-memory": "32Gi"}
    ready = {"type": "Ready", "status": "True"}
    return {"metadata": {"name": name}, "status": {"allocatable": amounts, "conditions": [ready], **status}}


def pod(name: str, on: str, priority: int, message: str = "", **requests: str) -> dict[str, Any]:
    spec = {"priority": priority, "containers": [{"name": "a", "image": "x", "resources": {"requests": requests}}]}
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    status = {"phase": "Running"} if on else {"phase": "Pending", "conditions": [condition] if message else []}
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": {**spec, "nodeName": on}, "status": status}


def metric(name: str, pods: dict[str, str], **extensions: Any) -> dict[str, Any]:
    usage = [
        {
            "name": pod,
            "namespace": "shop",
            "podUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}},
            **({"extensions": {"Object": extensions[pod]}} if pod in extensions else {}),
        }
        for pod, cpu in pods.items()
    ]
    whole = {"nodeUsage": {"resources": {"cpu": "2", "memory": "4Gi"}}}
    status = {"updateTime": "2026-01-01T12:00:00Z", "nodeMetric": whole, "podsMetric": usage}
    return {"metadata": {"name": name}, "status": status}


def test_nodes_and_classes_are_those_of_koord_top() -> None:
    async def told(found: Watched) -> None:
        client = found.api.client()
        pods, nodes = await client.list(PODS), await client.list(NODES)
        metrics = await client.list(NODE_METRICS)
        readings = {each.metadata.name: reading_of(each) for each in metrics.items}
        expected = usage_of_nodes(nodes.items, usage_of_pods(pods.items, readings), readings)
        row = found.rows("nodes")["n1"]
        assert {name: row[name] for name in asdict(expected[0])} == asdict(expected[0])
        assert (row["state"], row["reported"]) == ("ready", "2026-01-01T12:00:00Z")
        assert found.rows("classes") == {each.name: asdict(each) for each in usage_of_cluster(expected)}

    story(told)


def test_a_pod_that_ends_and_a_node_that_goes_leave_nothing_behind() -> None:
    async def told(found: Watched) -> None:
        assert found.rows("classes")["koord-batch"]["pods"] == 1
        found.api.put(PODS, {**pod("spark", "n1", 5500), "status": {"phase": "Succeeded"}})
        await wait_for(lambda: found.rows("classes")["koord-batch"]["pods"] == 0)
        found.api.remove(PODS, "web", "shop")
        await wait_for(lambda: "koord-prod" not in found.rows("classes"))
        found.api.remove(NODES, "n1")
        await wait_for(lambda: not found.rows("nodes"))
        assert found.rows("classes") == {}

    story(told)


def test_a_pod_that_waits_has_its_reason_until_it_has_a_node() -> None:
    async def told(found: Watched) -> None:
        found.api.put(
            PODS, pod("big", "", 9500, "0/1 nodes are available: 1 Insufficient cpu. preemption: none", cpu="99")
        )
        await wait_for(lambda: "shop/big" in found.rows("pending"))
        row = found.rows("pending")["shop/big"]
        assert (row["why"], row["class"]) == ("0/1 nodes are available: 1 Insufficient cpu", "koord-prod")
        assert row["requests"] == {"cpu": 99000, "memory": 0}
        assert "age" not in row
        found.api.put(PODS, pod("big", "n1", 9500))
        await wait_for(lambda: not found.rows("pending"))

    story(told)


def test_who_suffers_from_whom() -> None:
    victim = {"indicator": "cpi", "value": 2.0, "normal": 1.0, "limit": 1.5, "since": "t", "suspects": []}

    async def told(found: Watched) -> None:
        found.api.put(NODE_METRICS, metric("n1", {"web": "1"}, web={"interference": [victim]}))
        await wait_for(lambda: bool(found.rows("interference")))
        row = found.rows("interference")["shop/web cpi"]
        assert (row["node"], row["pod"], row["remedies"]) == ("n1", "shop/web", [])
        found.api.put(NODE_METRICS, metric("n1", {"web": "1"}))
        await wait_for(lambda: not found.rows("interference"))

    story(told)


def test_devices_have_their_holders() -> None:
    resources = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "80Gi"}
    cards = [
        {"type": "gpu", "minor": minor, "health": True, "id": f"GPU-{minor}", "resources": resources}
        for minor in (0, 1)
    ]
    held = {"gpu": [{"minor": 1, "resources": {"koordinator.sh/gpu-core": "50"}}]}

    async def told(found: Watched) -> None:
        found.api.put(DEVICES, {"metadata": {"name": "n1"}, "spec": {"devices": cards}})
        await wait_for(lambda: len(found.rows("devices")) == 2)
        train = pod("train", "n1", 9500)
        train["metadata"]["annotations"] = {"scheduling.koordinator.sh/device-allocated": json.dumps(held)}
        found.api.put(PODS, train)
        await wait_for(lambda: bool(found.rows("devices")["n1 gpu 1"]["holders"]))
        assert found.rows("devices")["n1 gpu 1"]["holders"] == [
            {"pod": "shop/train", "resources": {"koordinator.sh/gpu-core": 50}}
        ]
        assert found.rows("devices")["n1 gpu 0"]["holders"] == []

    story(told)


def test_quotas_reservations_migrations_and_drains() -> None:
    quota = {
        "metadata": {
            "name": "team",
            "namespace": "shop",
            "annotations": {"quota.scheduling.koordinator.sh/runtime": '{"cpu": "6"}'},
        },
        "spec": {"min": {"cpu": "4"}, "max": {"cpu": "8"}},
        "status": {"used": {"cpu": "5"}},
    }
    drain = {
        "metadata": {"name": "d"},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "podMigrationSummary": {"Waiting": 2}},
    }

    async def told(found: Watched) -> None:
        found.api.put(ELASTIC_QUOTAS, quota)
        found.api.put(RESERVATIONS, {"metadata": {"name": "r"}, "spec": {}, "status": {"phase": "Available"}})
        found.api.put(
            POD_MIGRATION_JOBS, {"metadata": {"name": "j"}, "spec": {"podRef": {"namespace": "shop", "name": "web"}}}
        )
        found.api.put(DRAIN_NODES, drain)
        await wait_for(lambda: all(found.rows(name) for name in ("quotas", "reservations", "migrations", "drains")))
        assert found.rows("quotas")["shop/team"]["amounts"] == {
            "min": {"cpu": 4000},
            "max": {"cpu": 8000},
            "used": {"cpu": 5000},
            "runtime": {"cpu": 6000},
        }
        assert found.rows("reservations")["r"]["phase"] == "Available"
        assert found.rows("migrations")["j"]["pod"] == "shop/web"
        assert found.rows("drains")["d"]["pods"] == {"Waiting": 2}

    story(told)


@pytest.mark.parametrize("is_for_administrator", [True, False])
def test_a_right_that_is_missing_is_named_in_its_table_alone(is_for_administrator: bool) -> None:
    forbidden = ApiStatusError(403, "Forbidden", 'User "eve" cannot list resource "devices"')

    async def told() -> None:
        api = InMemoryApi()
        api.put(NODES, node("n1"))
        api.fault = lambda asked, done: forbidden if asked.plural == "devices" and not done else None
        feed = Feed(api.client(), api.clock, is_for_administrator=is_for_administrator)
        found = Watched(api, feed)
        running = asyncio.ensure_future(feed.informers.run())
        await wait_for(lambda: 'cannot list resource "devices"' in found.tables()["devices"]["problem"])
        assert ("koord manifests" in found.tables()["devices"]["problem"]) == is_for_administrator
        await wait_for(lambda: "n1" in found.rows("nodes") and not found.tables()["nodes"]["problem"])
        running.cancel()

    asyncio.run(told())


def test_the_list_of_pods_comes_in_parts() -> None:
    async def told(found: Watched) -> None:
        for number in range(5):
            found.api.put(PODS, pod(f"many-{number}", "n1", 9500))
        await wait_for(lambda: len(list(found.feed.pods())) == 7)
        pods = PodList(found.feed)
        first = pods.page({"limit": "3", "text": "many"})
        assert ([each["key"] for each in first["pods"]], first["more"]) == (
            ["shop/many-0", "shop/many-1", "shop/many-2"],
            True,
        )
        rest = pods.page({"limit": "3", "text": "many", "after": "shop/many-2"})
        assert ([each["key"] for each in rest["pods"]], rest["more"]) == (["shop/many-3", "shop/many-4"], False)
        (spark,) = pods.page({"node": "n1", "class": "koord-batch"})["pods"]
        assert (spark["key"], spark["measured"]) == ("shop/spark", {"cpu": 1200, "memory": 1 << 30})
        (spark,) = pods.page({"node": "n1", "class": "koord-batch"}, measured=False)["pods"]
        assert spark["measured"] is None, "the reports of nodes are not for those who may see pods alone"

    story(told)
