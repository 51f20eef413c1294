"""The controller against the embedded API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kinds import ELASTIC_QUOTA_PROFILES, ELASTIC_QUOTAS, EVENTS, NODES
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from koordinator.manager.quota_profile.controller import QuotaProfileController
from tests.manager.controller_bench import ControllerBench, controller_bench

P = "quota.scheduling.koordinator.sh"
ZONE = "topology.kubernetes.io/zone"


async def quota_once(made: ControllerBench, is_there: Callable[[ElasticQuota], bool]) -> ElasticQuota:
    return await made.once(ELASTIC_QUOTAS, is_there)


async def add_node(client: KubeClient, name: str) -> None:
    document = {"metadata": {"name": name, "labels": {ZONE: "a"}}, "status": {"allocatable": {"cpu": "8"}}}
    await client.create(NODES, document)


async def add_profile(client: KubeClient, **changes: Any) -> None:
    spec = {"quotaName": "root", "nodeSelector": {"matchLabels": {ZONE: "a"}}, **changes}
    await client.create(ELASTIC_QUOTA_PROFILES, {"metadata": {"name": "pool"}, "spec": spec}, "default")


def test_a_profile_gets_its_quota_and_its_tree() -> None:
    async def scenario() -> None:
        async with controller_bench() as made, made.working(QuotaProfileController(made.context)):
            await add_node(made.client, "n1")
            await add_profile(made.client)
            quota = await quota_once(made, lambda quota: True)
            assert str(quota.spec.min["cpu"]) == "8"
            profile = await made.client.get(ELASTIC_QUOTA_PROFILES, "pool", "default")
            assert profile.metadata.labels[f"{P}/tree-id"] == quota.metadata.labels[f"{P}/tree-id"]

    asyncio.run(scenario())


def test_profiles_that_were_there_before_are_seen_to() -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            await add_node(made.client, "n1")
            await add_profile(made.client)
            async with made.working(QuotaProfileController(made.context)):
                await quota_once(made, lambda quota: True)

    asyncio.run(scenario())


def test_the_quota_follows_the_nodes_every_ten_seconds() -> None:
    async def scenario() -> None:
        async with controller_bench() as made, made.working(QuotaProfileController(made.context)):
            await add_node(made.client, "n1")
            await add_profile(made.client)
            await quota_once(made, lambda quota: True)
            await add_node(made.client, "n2")
            await made.until_known(NODES, lambda node: node.metadata.name == "n2")
            await made.clock.advance(10)
            await quota_once(made, lambda quota: str(quota.spec.min["cpu"]) == "16")

    asyncio.run(scenario())


def test_what_others_wrote_on_the_quota_survives() -> None:
    async def scenario() -> None:
        async with controller_bench() as made, made.working(QuotaProfileController(made.context)):
            await add_node(made.client, "n1")
            await add_profile(made.client)
            await quota_once(made, lambda quota: True)
            theirs = {"metadata": {"annotations": {"their/own": "x"}}, "spec": {"min": {"cpu": "1"}}}
            await made.client.patch(ELASTIC_QUOTAS, "root", theirs, PatchType.MERGE, "default")
            await made.clock.advance(10)
            again = await quota_once(made, lambda quota: str(quota.spec.min["cpu"]) == "8" and ours(quota))
            assert again.metadata.annotations["their/own"] == "x"

    def ours(quota: ElasticQuota) -> bool:
        return "their/own" in quota.metadata.annotations

    asyncio.run(scenario())


def test_a_selector_that_cannot_be_used_is_reported_on_the_profile() -> None:
    async def scenario() -> None:
        async with controller_bench() as made, made.working(QuotaProfileController(made.context)):
            await add_node(made.client, "n1")
            await add_profile(made.client, nodeSelector={"matchExpressions": [{"key": "a", "operator": "Near"}]})
            event = await made.once(EVENTS, lambda _: True)
            assert (event.reason, event.involved_object.name) == ("InvalidProfile", "pool")
            assert "'Near'" in event.message

    asyncio.run(scenario())


def test_a_quota_that_the_server_refuses_is_reported_and_tried_again() -> None:
    async def scenario() -> None:
        async with controller_bench() as made:
            await add_node(made.client, "n1")
            refusals = iter([ApiStatusError(403, "Forbidden", "no quotas today")])
            create = made.client.create

            async def refuse_once(kind: Any, *arguments: Any, **more: Any) -> Any:
                if kind is ELASTIC_QUOTAS and (error := next(refusals, None)) is not None:
                    raise error
                return await create(kind, *arguments, **more)

            made.client.create = refuse_once  # type: ignore[method-assign]
            await add_profile(made.client)
            async with made.working(QuotaProfileController(made.context)):
                assert (await made.once(EVENTS, lambda _: True)).reason == "CreateQuotaFailed"
                await made.clock.advance(2)
                await quota_once(made, lambda quota: True)

    asyncio.run(scenario())


def test_the_quota_follows_the_annotations_of_its_profile_at_once() -> None:
    async def scenario() -> None:
        async with controller_bench() as made, made.working(QuotaProfileController(made.context)):
            await add_node(made.client, "n1")
            await add_profile(made.client)
            await quota_once(made, lambda quota: True)
            patch = {"metadata": {"annotations": {f"{P}/resource-keys": '["cpu"]'}}}
            await made.client.patch(ELASTIC_QUOTA_PROFILES, "pool", patch, PatchType.MERGE, "default")
            await quota_once(made, lambda quota: set(quota.spec.min) == {"cpu"})

    asyncio.run(scenario())
