"""Budgets are kept current while pods come, get ready and go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from koordinator.api.document import Document, copied
from koordinator.cluster.background import BackgroundLoops
from koordinator.cluster.disruption import DisruptionController
from koordinator.cluster.errors import ApiError
from koordinator.cluster.verbs.delete import delete
from koordinator.cluster.verbs.eviction import evict
from koordinator.cluster.verbs.options import DeleteOptions, WriteOptions
from koordinator.cluster.verbs.update import modify
from tests.cluster.embedded import Verbs, pod

_LABELS = {"app": "web"}


class _Cluster(Verbs):
    async def add_pod(self, name: str, *, owner: Document | None = None) -> None:
        document = pod(name, nodeName="n")
        document["metadata"]["labels"] = dict(_LABELS)
        if owner is not None:
            document["metadata"]["ownerReferences"] = [owner]
        await self.create("pods", document)
        await modify(self.environment, self.target("pods", name, subresource="status"), _ready)

    async def add_budget(self, **spec: Any) -> None:
        selector = {"matchLabels": _LABELS}
        await self.create(
            "poddisruptionbudgets", {"metadata": {"name": "b"}, "spec": {"selector": selector, **spec}}, group="policy"
        )

    def status(self) -> Document:
        budget = self.get("poddisruptionbudgets", "b", group="policy")
        assert budget is not None
        return dict(budget["status"])

    async def allows(self, disruptions: int) -> None:
        """Waits until the controller has come to that."""
        async with asyncio.timeout(5):
            while not self.status().get("observedGeneration") or self.status()["disruptionsAllowed"] != disruptions:
                await asyncio.sleep(0)


def _ready(old: Document) -> Document:
    changed: Document = copied(old)
    changed["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return changed


def _run(scenario: Callable[[_Cluster], Awaitable[None]]) -> None:
    async def play() -> None:
        cluster = _Cluster()
        loops = BackgroundLoops(cluster.clock, Random(1))
        for name, body in DisruptionController(cluster.environment).loops().items():
            loops.add(name, body)
        loop = asyncio.ensure_future(loops.run())
        try:
            await scenario(cluster)
        finally:
            loop.cancel()
            await asyncio.wait((loop,))

    asyncio.run(play())


def test_pods_that_get_ready_may_go() -> None:
    async def scenario(cluster: _Cluster) -> None:
        await cluster.add_budget(minAvailable=1)
        await cluster.allows(0)
        await cluster.add_pod("a")
        await cluster.add_pod("b")
        await cluster.allows(1)
        await delete(cluster.environment, cluster.target("pods", "a"), DeleteOptions(grace_period_seconds=0))
        await cluster.allows(0)

    _run(scenario)


def test_a_budget_that_comes_after_its_pods() -> None:
    async def scenario(cluster: _Cluster) -> None:
        await cluster.add_pod("a")
        await cluster.add_budget(minAvailable=0)
        await cluster.allows(1)

    _run(scenario)


def test_a_changed_budget_is_looked_at_anew() -> None:
    async def scenario(cluster: _Cluster) -> None:
        await cluster.add_pod("a")
        await cluster.add_budget(minAvailable=0)
        await cluster.allows(1)
        target = cluster.target("poddisruptionbudgets", "b", group="policy")
        await modify(cluster.environment, target, lambda old: {**old, "spec": {**old["spec"], "minAvailable": 1}})
        await cluster.allows(0)
        assert cluster.status()["observedGeneration"] == 2

    _run(scenario)


def test_one_eviction_after_the_other() -> None:
    """A pod that is on its way out counts as gone, so the second one has to wait for a third."""

    async def scenario(cluster: _Cluster) -> None:
        await cluster.add_budget(minAvailable=1)
        await cluster.add_pod("a")
        await cluster.add_pod("b")
        await cluster.allows(1)
        await _evict(cluster, "a")
        await cluster.allows(0)
        with pytest.raises(ApiError) as refusal:
            await _evict(cluster, "b")
        assert refusal.value.code == 429
        await cluster.add_pod("c")
        await cluster.allows(1)
        await _evict(cluster, "b")

    _run(scenario)


def test_a_pod_that_outlives_its_eviction_counts_again() -> None:
    async def scenario(cluster: _Cluster) -> None:
        await cluster.add_budget(minAvailable=0)
        await cluster.add_pod("a")
        await cluster.allows(1)
        now = cluster.clock.now().isoformat()[:19] + "Z"

        def disrupted(old: Document) -> Document:
            return {**copied(old), "status": {**old["status"], "disruptedPods": {"a": now}}}

        target = cluster.target("poddisruptionbudgets", "b", group="policy", subresource="status")
        await modify(cluster.environment, target, disrupted)
        await cluster.allows(0)
        await cluster.clock.advance(125)
        await cluster.allows(1)

    _run(scenario)


def test_shares_are_taken_of_what_the_controller_wants() -> None:
    async def scenario(cluster: _Cluster) -> None:
        template = {"metadata": {"labels": _LABELS}, "spec": pod("x")["spec"]}
        spec = {"replicas": 4, "selector": {"matchLabels": _LABELS}, "template": template}
        replica_set = await cluster.create("replicasets", {"metadata": {"name": "rs"}, "spec": spec}, group="apps")
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "controller": True}
        for name in ("a", "b", "c"):
            await cluster.add_pod(name, owner={**owner, "uid": replica_set["metadata"]["uid"]})
        await cluster.add_budget(maxUnavailable="50%")
        await cluster.allows(1)
        assert (cluster.status()["expectedPods"], cluster.status()["desiredHealthy"]) == (4, 2)

    _run(scenario)


def test_a_controller_that_is_not_there() -> None:
    async def scenario(cluster: _Cluster) -> None:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": True}
        await cluster.add_pod("a", owner=owner)
        await cluster.add_budget(maxUnavailable=1)
        async with asyncio.timeout(5):
            while not cluster.status().get("conditions"):
                await asyncio.sleep(0)
        assert cluster.status()["conditions"][0]["message"] == 'found no controllers for pod "a"'

    _run(scenario)


async def _evict(cluster: _Cluster, name: str) -> None:
    target = cluster.target("pods", name, subresource="eviction")
    await evict(cluster.environment, target, {"metadata": {"name": name}}, WriteOptions())
