"""What the server's own loops outlive: a history that went on without them, a full disk, objects that are damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.admission_webhooks.configuration import VALIDATING, Followed, webhooks_of
from koordinator.cluster.background import BackgroundLoops, LoopBody
from koordinator.cluster.custom_resources import CustomResources
from koordinator.cluster.disruption import DisruptionController
from koordinator.cluster.storage.indexed import MemoryStorage
from koordinator.cluster.storage.interface import Change, StorageFull
from koordinator.cluster.storage.watch_cache import HistoryLimits
from koordinator.cluster.termination import Termination
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.delete import delete
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.options import DeleteOptions
from koordinator.cluster.verbs.target import Target
from koordinator.cluster.verbs.update import patch
from tests.cluster.embedded import Verbs, config_map, pod

HISTORY = HistoryLimits(changes=20)
MERGE = "application/merge-patch+json"


class _Storage(MemoryStorage):
    """On a disk that may be full."""

    full = False

    def _persist(self, changes: Sequence[Change], *, frees: bool) -> None:
        if self.full:
            raise StorageFull("no room")


class _Cluster(Verbs):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.storage: _Storage = _Storage(HISTORY)
        self.environment = Environment(self.storage, self.environment.registry, self.clock, Random(1))

    def of(self, plural: str, name: str, namespace: str | None = None, group: str = "") -> Target:
        resource = self.environment.registry.stored[group, plural]
        assert resource is not None
        return Target(resource, namespace, name)

    def exists(self, target: Target) -> bool:
        return self.storage.get(target.key) is not None

    async def namespace(self, name: str) -> Target:
        target = self.of("namespaces", name)
        await create(self.environment, target, {"metadata": {"name": name}})
        return target

    async def held(self, namespace: str) -> Target:
        """A config map that keeps its namespace from going."""
        target = self.of("configmaps", "held", namespace)
        await create(self.environment, target, config_map("held", finalizers=["example.io/held"]))
        return target

    async def let_go(self, target: Target) -> None:
        await patch(self.environment, target, MERGE, b'{"metadata":{"finalizers":null}}')

    async def write_past_the_history(self) -> None:
        for number in range(3 * HISTORY.changes):
            target = self.of("configmaps", "", "default")
            await create(self.environment, target, config_map("", generateName=f"c-{number}-"))
            await self.clock.advance(0)

    async def delete(self, target: Target) -> None:
        await delete(self.environment, target, DeleteOptions(grace_period_seconds=0))


Scenario = Callable[[_Cluster, BackgroundLoops], Awaitable[None]]


def _run(scenario: Scenario, bodies: Callable[[Environment], Mapping[str, LoopBody]]) -> None:
    async def main() -> None:
        cluster = _Cluster()
        loops = BackgroundLoops(cluster.clock, Random(1))
        for name, body in bodies(cluster.environment).items():
            loops.add(name, body)
        running = asyncio.ensure_future(loops.run())
        try:
            await scenario(cluster, loops)
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.wait((running,))

    asyncio.run(main())


def _terminating(scenario: Scenario) -> None:
    _run(scenario, lambda environment: Termination(environment).loops())


def test_a_namespace_that_is_stuck_while_the_history_passes_by() -> None:
    async def scenario(cluster: _Cluster, loops: BackgroundLoops) -> None:
        stuck = await cluster.namespace("stuck")
        held = await cluster.held("stuck")
        await cluster.clock.advance(0)
        await cluster.delete(stuck)
        await cluster.clock.advance(5)
        await cluster.namespace("other")
        await cluster.write_past_the_history()
        await cluster.let_go(held)
        await cluster.clock.advance(5)
        assert not cluster.exists(stuck)
        # The loop follows further namespaces, too.
        later = await cluster.namespace("later")
        await cluster.write_past_the_history()
        await cluster.delete(later)
        await cluster.clock.advance(5)
        assert not cluster.exists(later)
        assert loops.check("namespace-termination") == ""

    _terminating(scenario)


def test_a_namespace_goes_when_a_full_disk_has_capacity_again() -> None:
    async def scenario(cluster: _Cluster, loops: BackgroundLoops) -> None:
        target = await cluster.namespace("n")
        await create(cluster.environment, cluster.of("configmaps", "", "n"), config_map("c"))
        await cluster.delete(target)
        cluster.storage.full = True
        await cluster.clock.advance(60)
        assert cluster.exists(target)
        cluster.storage.full = False
        await cluster.clock.advance(60)
        assert not cluster.exists(target)

    _terminating(scenario)


def test_a_damaged_namespace_does_not_keep_others_from_going() -> None:
    async def scenario(cluster: _Cluster, loops: BackgroundLoops) -> None:
        damaged: Document = {"metadata": {"name": "damaged", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": "?"}
        await cluster.storage.create(cluster.of("namespaces", "damaged").key, msgspec.json.encode(damaged))
        target = await cluster.namespace("n")
        await cluster.delete(target)
        await cluster.clock.advance(5)
        assert not cluster.exists(target)
        assert "namespaces that cannot be terminated" in loops.check("namespace-termination")

    _terminating(scenario)


def test_budgets_are_current_after_the_history_and_a_full_disk_have_passed_by() -> None:
    async def scenario(cluster: _Cluster, loops: BackgroundLoops) -> None:
        budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "web"}}}}
        cluster.storage.full = False
        await cluster.create("poddisruptionbudgets", budget, group="policy")
        await cluster.clock.advance(1)
        for number in range(2 * HISTORY.changes):
            document = pod(f"p-{number}", nodeName="n")
            document["metadata"]["labels"] = {"app": "web"}
            await cluster.create("pods", document)
            cluster.storage.full = True  # the budget cannot be written
            await cluster.clock.advance(0)
            cluster.storage.full = False
        await cluster.clock.advance(60)
        found = cluster.get("poddisruptionbudgets", "b", group="policy")
        assert found is not None
        assert found["status"]["expectedPods"] == 2 * HISTORY.changes
        assert [name for name in loops.names if loops.check(name)] == []

    _run(scenario, lambda environment: DisruptionController(environment).loops())


def _definition(name: str) -> Document:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {"name": f"{name}.example.io"},
        "spec": {
            "group": "example.io",
            "scope": "Namespaced",
            "names": {"plural": name, "singular": name[:-1], "kind": name[:-1].title()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def test_a_damaged_definition_does_not_keep_others_from_being_served() -> None:
    cluster = _Cluster()

    async def main() -> None:
        definitions = cluster.of("customresourcedefinitions", "damaged", group="apiextensions.k8s.io")
        await cluster.storage.create(definitions.key, b'{"metadata":{"name":"damaged"}}')
        await cluster.create("customresourcedefinitions", _definition("things"), group="apiextensions.k8s.io")
        custom_resources = CustomResources(cluster.environment)
        custom_resources.load()
        assert cluster.environment.registry.stored["example.io", "things"] is not None
        assert custom_resources.check().startswith("damaged: KeyError")

    asyncio.run(main())


def test_definitions_are_listed_anew_when_their_loop_starts_anew() -> None:
    cluster = _Cluster()

    async def main() -> None:
        for name in ("things", "others"):
            await cluster.create("customresourcedefinitions", _definition(name), group="apiextensions.k8s.io")
        custom_resources = CustomResources(cluster.environment)
        custom_resources.load()
        others = cluster.of("customresourcedefinitions", "others.example.io", group="apiextensions.k8s.io")
        await cluster.storage.delete(others.key, 2)
        custom_resources.load()
        served = [r.plural for r in cluster.environment.registry if r.group == "example.io"]
        assert (served, cluster.environment.registry.stored["", "pods"] is not None) == (["things"], True)

    asyncio.run(main())


def test_a_damaged_webhook_configuration_does_not_put_others_out_of_force() -> None:
    cluster = _Cluster()

    async def main() -> None:
        group = "admissionregistration.k8s.io"
        damaged = cluster.of(VALIDATING, "damaged", group=group)
        await cluster.storage.create(damaged.key, b'{"metadata":{"name":"damaged"},"webhooks":[{}]}')
        webhook = {
            "name": "good.example.io", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }  # fmt: skip
        await cluster.create(VALIDATING, {"metadata": {"name": "good"}, "webhooks": [webhook]}, group=group)
        configurations = Followed(cluster.storage, cluster.environment.registry, VALIDATING, webhooks_of, set())
        configurations.load()
        assert [webhook.name for each in configurations.objects for webhook in each] == ["good.example.io"]
        assert configurations.check() == "damaged: KeyError: 'name'"

    asyncio.run(main())
