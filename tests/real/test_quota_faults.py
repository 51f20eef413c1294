"""Elastic quotas when things go wrong: on a real API server no quota is ever exceeded, and nothing is lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from koordinator.api.kinds import ELASTIC_QUOTAS, PODS
from koordinator.api.pod import Pod
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import KubeError
from koordinator.kube.event_series import EVENTS_V1
from koordinator.kube.interface import PatchType
from koordinator.scheduler.cycle.failure_report import scheduled_condition
from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms
from tests.real.quota_runs import PREFIX, connected, pod, prepare, quota, running

SECONDS = 60.0
LABEL = f"{PREFIX}/name"


async def used(client: KubeClient) -> dict[str, int]:
    """Milli-CPU of the pods on nodes, by the quota that they name."""
    found: dict[str, int] = {}
    for each in (await client.list(PODS, "default")).items:
        if each.spec.node_name:
            name = each.metadata.labels.get(LABEL, "")
            found[name] = found.get(name, 0) + each.spec.containers[0].resources.requests["cpu"].milli
    return found


async def until_used(client: KubeClient, quota_name: str, expected: int) -> None:
    async with asyncio.timeout(SECONDS):
        while (await used(client)).get(quota_name, 0) != expected:
            await asyncio.sleep(0.1)


async def until_reported(client: KubeClient, name: str, text: str) -> None:
    """Until the pod's condition says so."""
    async with asyncio.timeout(SECONDS):
        while True:
            found: Pod = await client.get(PODS, name, "default")
            condition = scheduled_condition(found)
            if condition is not None and text in condition.message:
                return
            await asyncio.sleep(0.1)


@asynccontextmanager
async def never_above(client: KubeClient, quota_name: str, most: int) -> AsyncIterator[None]:
    """At no moment of the block do bound pods use more."""
    seen: list[int] = []

    async def look() -> None:
        while True:
            with contextlib.suppress(KubeError):
                seen.append((await used(client)).get(quota_name, 0))
            await asyncio.sleep(0.05)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
    assert seen, "nobody has looked"
    assert max(seen) <= most


async def create_quota(client: KubeClient, document: dict[str, Any]) -> None:
    await client.create(ELASTIC_QUOTAS, document, document["metadata"]["namespace"])


async def create_pods(client: KubeClient, of: str, count: int) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(client.create(PODS, pod(f"{of}-{number:03}", of), "default"))


def test_a_burst_and_a_killed_scheduler_exceed_no_quota(
    plane: ControlPlane, real_programs: RealPrograms, tmp_path: Path
) -> None:
    """200 pods at once for a quota that admits 20, whose scheduler is killed in the middle."""

    async def story() -> None:
        async with connected(plane) as client:
            await prepare(client)
            await create_quota(client, quota("burst", {}, {"cpu": "20", "memory": "90Gi"}))
            async with never_above(client, "burst", 20_000):
                with running("ours", real_programs, plane, tmp_path) as process:
                    assert process is not None
                    await create_pods(client, "burst", 200)
                    async with asyncio.timeout(SECONDS):
                        while not await used(client):
                            await asyncio.sleep(0.01)
                    process.kill()
                with running("ours", real_programs, plane, tmp_path):
                    await until_used(client, "burst", 20_000)
                    await client.delete(PODS, next(iter(await bound(client))), "default", grace_period_seconds=0)
                    await until_used(client, "burst", 20_000)

    asyncio.run(story())


async def bound(client: KubeClient) -> list[str]:
    return [each.metadata.name for each in (await client.list(PODS, "default")).items if each.spec.node_name]


def test_quotas_are_changed_and_deleted_while_pods_use_them(
    plane: ControlPlane, real_programs: RealPrograms, tmp_path: Path
) -> None:
    async def story() -> None:
        async with connected(plane) as client:
            await prepare(client)
            await create_quota(client, quota("team", {}, {"cpu": "2", "memory": "90Gi"}))
            with running("ours", real_programs, plane, tmp_path):
                await create_pods(client, "team", 5)
                await until_used(client, "team", 2000)
                change = {"spec": {"max": {"cpu": "3"}}}
                await client.patch(ELASTIC_QUOTAS, "team", change, PatchType.MERGE, "default")
                await until_used(client, "team", 3000)
                # Its pods belong to the default quota now, which has no limit here.
                await client.delete(ELASTIC_QUOTAS, "team", "default")
                await until_used(client, "team", 5000)

    asyncio.run(story())


def test_broken_quotas_say_what_is_wrong_and_others_go_on(
    plane: ControlPlane, real_programs: RealPrograms, tmp_path: Path
) -> None:
    async def story() -> None:
        async with connected(plane) as client:
            await prepare(client)
            most = {"cpu": "4", "memory": "90Gi"}
            await create_quota(client, quota("ring-a", {}, most, parent="ring-b"))
            await create_quota(client, quota("ring-b", {}, most, parent="ring-a"))
            await create_quota(client, quota("orphan", {}, most, parent="nobody"))
            await create_quota(client, quota("wrong", {"cpu": "9", "memory": "-1Gi"}, most, weight="lots"))
            await create_quota(client, quota("right", {}, most))
            with running("ours", real_programs, plane, tmp_path):
                for name in ("ring-a", "orphan", "wrong", "right"):
                    await create_pods(client, name, 1)
                await until_reported(client, "ring-a-000", "its parents form a cycle: ring-a -> ring-b -> ring-a")
                await until_reported(client, "orphan-000", "there is no quota nobody, the parent of orphan")
                for name in ("wrong", "right"):
                    await until_used(client, name, 1000)
                await until_events(client, {"ring-a", "ring-b", "orphan", "wrong"})

    asyncio.run(story())


async def until_events(client: KubeClient, quotas: set[str]) -> None:
    """Until each of them has a Warning, and no other quota."""
    async with asyncio.timeout(SECONDS):
        while True:
            events = json.loads(await client.raw("GET", EVENTS_V1.path("default")))["items"]
            warned = {each["regarding"]["name"] for each in events if each["reason"] == "InvalidQuota"}
            if warned >= quotas:
                assert warned == quotas
                return
            await asyncio.sleep(0.1)
