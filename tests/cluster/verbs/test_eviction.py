"""What happens to an eviction when others change the pod or its budget at the same time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from koordinator.api.document import Document, copied
from koordinator.cluster.errors import ApiError
from koordinator.cluster.storage.indexed import MemoryStorage
from koordinator.cluster.storage.interface import Stored
from koordinator.cluster.verbs.eviction import evict
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.update import modify
from tests.cluster.embedded import Verbs, pod


class _Contended(Verbs):
    """``interfere`` runs once, before the first write below ``prefix``."""

    prefix = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        update = self.storage.update

        async def contended(key: str, value: bytes, expected: int, *, frees: bool = False) -> Stored:
            if self.prefix and key.startswith(self.prefix):
                self.prefix = ""
                await self.interfere()
            return await update(key, value, expected, frees=frees)

        self.environment = replace(self.environment, storage=_with_update(self.storage, contended))

    async def interfere(self) -> None:
        raise NotImplementedError

    async def set_status(self, plural: str, name: str, group: str = "", **status: Any) -> None:
        def change(old: Document) -> Document:
            return {**copied(old), "status": {**old["status"], **status}}

        await modify(self.environment, self.target(plural, name, group=group, subresource="status"), change)

    async def evict(self) -> None:
        target = self.target("pods", "a", subresource="eviction")
        await evict(self.environment, target, {"metadata": {"name": "a"}}, WriteOptions())

    async def guarded_pod(self, phase: str, *, ready: bool, allowed: int, **budget: Any) -> None:
        document = pod("a", nodeName="n")
        document["metadata"]["labels"] = {"app": "web"}
        await self.create("pods", document)
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        await self.set_status("pods", "a", phase=phase, conditions=[condition])
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}, **budget}
        await self.create("poddisruptionbudgets", {"metadata": {"name": "b"}, "spec": spec}, group="policy")
        await self.set_status("poddisruptionbudgets", "b", "policy", observedGeneration=1, disruptionsAllowed=allowed)

    def allowed(self) -> int:
        budget = self.get("poddisruptionbudgets", "b", group="policy")
        assert budget is not None
        return int(budget["status"]["disruptionsAllowed"])


def _with_update(storage: MemoryStorage, update: Any) -> Any:
    class Wrapped:
        def __getattr__(self, name: str) -> Any:
            return update if name == "update" else getattr(storage, name)

    return Wrapped()


class _GetsReady(_Contended):
    async def interfere(self) -> None:
        await self.set_status("pods", "a", phase="Running", conditions=[{"type": "Ready", "status": "True"}])


class _Competes(_Contended):
    async def interfere(self) -> None:
        await self.set_status("poddisruptionbudgets", "b", "policy", disruptionsAllowed=1)


def test_a_starting_pod_that_gets_ready_is_its_budgets_business() -> None:
    async def scenario() -> None:
        cluster = _GetsReady()
        await cluster.guarded_pod("Pending", ready=False, allowed=0)
        cluster.prefix = "/core/pods/"
        with pytest.raises(ApiError) as refusal:
            await cluster.evict()
        assert refusal.value.code == 429
        found = cluster.get("pods", "a")
        assert found is not None
        assert "deletionTimestamp" not in found["metadata"]

    asyncio.run(scenario())


def test_an_unready_pod_that_gets_ready_is_to_be_tried_again() -> None:
    async def scenario() -> None:
        cluster = _GetsReady()
        await cluster.guarded_pod("Running", ready=False, allowed=0, unhealthyPodEvictionPolicy="AlwaysAllow")
        cluster.prefix = "/core/pods/"
        with pytest.raises(ApiError) as refusal:
            await cluster.evict()
        assert (refusal.value.code, refusal.value.retry_after) == (429, 10)

    asyncio.run(scenario())


def test_two_evictions_never_take_the_same_disruption() -> None:
    async def scenario() -> None:
        cluster = _Competes()
        await cluster.guarded_pod("Running", ready=True, allowed=2)
        cluster.prefix = "/policy/poddisruptionbudgets/"
        await cluster.evict()
        assert cluster.allowed() == 0

    asyncio.run(scenario())
