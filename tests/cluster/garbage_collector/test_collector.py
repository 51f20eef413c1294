"""The garbage collector by owner, on a store in memory; the real one is beside it in tests/real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.document import Document, copied
from koordinator.cluster.background import BackgroundLoops
from koordinator.cluster.errors import ApiError
from koordinator.cluster.garbage_collector.collector import GarbageCollector
from koordinator.cluster.garbage_collector.graph import DependencyGraph, metadata_of
from koordinator.cluster.verbs.delete import delete
from koordinator.cluster.verbs.environment import Attributes, NoWebhooks
from koordinator.cluster.verbs.options import DeleteOptions
from koordinator.cluster.verbs.update import modify
from tests.cluster.embedded import Verbs, config_map, pod

_NOWHERE = "00000000-0000-0000-0000-000000000000"


class _Cluster(Verbs):
    """ConfigMaps that own each other."""

    @asynccontextmanager
    async def collecting(self) -> AsyncIterator[None]:
        loops = BackgroundLoops(self.clock, Random(1))
        for name, body in GarbageCollector(self.environment).loops().items():
            loops.add(name, body)
        task = asyncio.create_task(loops.run())
        try:
            yield
            assert not loops.check("garbage-collector")
        finally:
            task.cancel()
            await self.storage.close()

    async def settle(self) -> None:
        """Until nothing is written any more."""
        quiet, revision = 0, self.storage.revision()
        while quiet < 50:
            await asyncio.sleep(0)
            quiet = quiet + 1 if self.storage.revision() == revision else 0
            revision = self.storage.revision()

    async def make(self, name: str, *owners: Document, **metadata: Any) -> Document:
        """Returns the reference to it."""
        made = await self.create("configmaps", config_map(name, ownerReferences=list(owners), **metadata))
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"]}

    async def remove(self, name: str, policy: str = "") -> None:
        options = DeleteOptions(propagation_policy=policy)
        await delete(self.environment, self.target("configmaps", name), options)

    async def change(self, name: str, change: Callable[[Document], None]) -> None:
        def changed(obj: Document) -> Document:
            new: Document = copied(obj)
            change(new["metadata"])
            return new

        await modify(self.environment, self.target("configmaps", name), changed)

    def left(self) -> dict[str, Document]:
        """The metadata of all ConfigMaps."""
        found = self.environment.list_objects("", "configmaps")
        return {each["metadata"]["name"]: each["metadata"] for each in found}


def test_dependents_go_in_the_background_and_what_was_lost_before_goes_at_the_start() -> None:
    async def scenario() -> None:
        cluster = _Cluster()
        owner = await cluster.make("owner")
        await cluster.make("a", owner)
        await cluster.make("lost", {**owner, "uid": _NOWHERE})
        await cluster.make("other")
        async with cluster.collecting():
            await cluster.settle()
            assert set(cluster.left()) == {"owner", "a", "other"}
            await cluster.remove("owner")
            await cluster.settle()
            assert set(cluster.left()) == {"other"}

    asyncio.run(scenario())


def test_an_owner_in_the_foreground_waits_for_those_that_block_it() -> None:
    async def scenario() -> None:
        cluster = _Cluster()
        async with cluster.collecting():
            owner = await cluster.make("owner")
            await cluster.make("a", {**owner, "blockOwnerDeletion": True}, finalizers=["x.io/held"])
            await cluster.make("b", owner, finalizers=["x.io/held"])
            await cluster.remove("owner", "Foreground")
            await cluster.settle()
            left = cluster.left()
            assert left["owner"]["finalizers"] == ["foregroundDeletion"]
            assert all("deletionTimestamp" in each for each in left.values())
            # It does not go before it blocks no longer.
            await cluster.change("a", lambda metadata: metadata["ownerReferences"][0].pop("blockOwnerDeletion"))
            await cluster.settle()
            assert set(cluster.left()) == {"a", "b"}

    asyncio.run(scenario())


def test_a_dependent_that_a_webhook_keeps_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    class Guard(NoWebhooks):
        in_force = ("guard",)
        is_closed = True

        async def validate(self, attributes: Attributes) -> None:
            if self.is_closed and attributes.target.name == "a":
                raise ApiError(403, "Forbidden", "not a")

    async def scenario() -> None:
        cluster, guard = _Cluster(), Guard()
        owner = await cluster.make("owner")
        for name in ("a", "b"):
            await cluster.make(name, owner)
        object.__setattr__(cluster.environment, "webhooks", guard)
        async with cluster.collecting():
            await cluster.remove("owner")
            await cluster.settle()
            assert set(cluster.left()) == {"a"}
            guard.is_closed = False
            await cluster.clock.advance(10)
            await cluster.settle()
            assert not cluster.left()

    asyncio.run(scenario())
    assert "/core/configmaps/default/a is not collected yet: not a" in caplog.text


def test_pods_get_their_grace_period() -> None:
    async def scenario() -> None:
        cluster = _Cluster()
        async with cluster.collecting():
            owner = await cluster.make("owner")
            document = pod("p", nodeName="n", terminationGracePeriodSeconds=30)
            document["metadata"]["ownerReferences"] = [owner]
            await cluster.create("pods", document)
            await cluster.remove("owner")
            await cluster.settle()
            left = cluster.get("pods", "p")
            assert left is not None
            assert left["metadata"]["deletionGracePeriodSeconds"] == 30

    asyncio.run(scenario())


_NAMES = tuple("abcdef")
_OWNERS = st.lists(st.tuples(st.sampled_from((*_NAMES, "nobody")), st.booleans()), max_size=2, unique_by=lambda o: o[0])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("make"), st.sampled_from(_NAMES), _OWNERS, st.booleans()),
        st.tuples(st.just("adopt"), st.sampled_from(_NAMES), _OWNERS),
        st.tuples(st.just("let go"), st.sampled_from(_NAMES)),
        st.tuples(
            st.just("remove"), st.sampled_from(_NAMES), st.sampled_from(("", "Orphan", "Foreground", "Background"))
        ),
        st.tuples(st.just("settle")),
    ),
    max_size=25,
)


@settings(max_examples=120)
@given(_STEPS)
def test_whatever_happens_nothing_is_left_that_has_no_owner_and_nothing_waits_for_nothing(steps: list[Any]) -> None:
    async def scenario() -> None:
        cluster, known = _Cluster(), dict[str, Document]()
        async with cluster.collecting():
            for step in steps:
                await _take(cluster, known, step)
            await cluster.settle()
            _check(cluster)

    asyncio.run(scenario())


async def _take(cluster: _Cluster, known: dict[str, Document], step: Any) -> None:
    def references(owners: list[tuple[str, bool]]) -> list[Document]:
        nobody = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": _NOWHERE}
        return [{**known.get(name, nobody), "blockOwnerDeletion": block} for name, block in owners]

    try:
        match step:
            case ("make", name, owners, held):
                finalizers = ["x.io/held"] if held else []
                known[name] = await cluster.make(name, *references(owners), finalizers=finalizers)
            case ("adopt", name, owners):
                new = references(owners)
                await cluster.change(name, lambda metadata: metadata.update(ownerReferences=new))
            case ("let go", name):
                await cluster.change(name, lambda metadata: metadata.pop("finalizers", None))
            case ("remove", name, policy):
                await cluster.remove(name, policy)
            case _:
                await cluster.settle()
    except ApiError as error:
        # It is there already, or not there.
        if error.code not in (404, 409, 422):
            raise


def _check(cluster: _Cluster) -> None:
    left = cluster.left()
    uids = {metadata["uid"] for metadata in left.values()}
    owned: dict[str, list[Document]] = {}
    for metadata in left.values():
        owners = metadata.get("ownerReferences") or []
        for owner in owners:
            owned.setdefault(owner["uid"], []).append(owner)
        if "deletionTimestamp" not in metadata and owners:
            # Of those that stay, no reference leads nowhere.
            assert {owner["uid"] for owner in owners} <= uids, metadata
    for metadata in left.values():
        if "deletionTimestamp" in metadata:
            finalizers = metadata.get("finalizers") or []
            assert "orphan" not in finalizers
            assert finalizers
            if "foregroundDeletion" in finalizers:
                assert any(owner.get("blockOwnerDeletion") for owner in owned.get(metadata["uid"], ())), metadata


@given(_STEPS)
def test_the_graph_is_that_of_what_is_stored(steps: list[Any]) -> None:
    async def scenario() -> None:
        cluster, known, graph = _Cluster(), dict[str, Document](), DependencyGraph()
        cluster.storage.observe(graph.apply)
        for step in steps:
            if step[0] != "settle":
                await _take(cluster, known, step)
        stored = cluster.storage.list("/core/configmaps/").items
        expected: dict[str, set[str]] = {}
        for each in stored:
            for owner in metadata_of(each).owners:
                expected.setdefault(owner.uid, set()).add(each.key)
        uids = {_NOWHERE, *(reference["uid"] for reference in known.values()), *expected}
        assert {uid: set(graph.dependents_of(uid)) for uid in uids if graph.has_dependents(uid)} == expected

    asyncio.run(scenario())
