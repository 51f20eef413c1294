"""What the server's own loops outlive: a history that went on without them, a full disk, objects that are damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.admission_webhooks.configuration import VALIDATING, Configurations
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

    def _persist(self, changes: Sequence[Change]) -> None:
        if self.full:
            raise StorageFull("no room")


class _World(Verbs):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.storage: _Storage = _Storage(HISTORY)
        self.environment = Environment(self.storage, self.environment.registry, self.clock, Random(1))

    def of(self, plural: str, name: str, namespace: str | None = None, group: str = "") -> Target:
        resource = self.environment.registry.stored(group, plural)
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


Scenario = Callable[[_World, BackgroundLoops], Awaitable[None]]


def _run(scenario: Scenario, bodies: Callable[[Environment], Mapping[str, LoopBody]]) -> None:
    async def main() -> None:
        world = _World()
        loops = BackgroundLoops(world.clock, Random(1))
        for name, body in bodies(world.environment).items():
            loops.add(name, body)
        running = asyncio.ensure_future(loops.run())
        try:
            await scenario(world, loops)
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.wait((running,))

    asyncio.run(main())


def _terminating(scenario: Scenario) -> None:
    _run(scenario, lambda environment: Termination(environment).loops())


def test_a_namespace_that_is_stuck_while_the_history_passes_by() -> None:
    async def scenario(world: _World, loops: BackgroundLoops) -> None:
        stuck = await world.namespace("stuck")
        held = await world.held("stuck")
        await world.clock.advance(0)
        await world.delete(stuck)
        await world.clock.advance(5)
        await world.namespace("other")
        await world.write_past_the_history()
        await world.let_go(held)
        await world.clock.advance(5)
        assert not world.exists(stuck)
        # The loop follows further namespaces, too.
        later = await world.namespace("later")
        await world.write_past_the_history()
        await world.delete(later)
        await world.clock.advance(5)
        assert not world.exists(later)
        assert loops.check("namespace-termination") == ""

    _terminating(scenario)


def test_a_namespace_goes_when_a_full_disk_has_room_again() -> None:
    async def scenario(world: _World, loops: BackgroundLoops) -> None:
        target = await world.namespace("n")
        await create(world.environment, world.of("configmaps", "", "n"), config_map("c"))
        await world.delete(target)
        world.storage.full = True
        await world.clock.advance(60)
        assert world.exists(target)
        world.storage.full = False
        await world.clock.advance(60)
        assert not world.exists(target)

    _terminating(scenario)


def test_a_damaged_namespace_does_not_keep_others_from_going() -> None:
    async def scenario(world: _World, loops: BackgroundLoops) -> None:
        damaged: Document = {"metadata": {"name": "damaged", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": "?"}
        await world.storage.create(world.of("namespaces", "damaged").key, msgspec.json.encode(damaged))
        target = await world.namespace("n")
        await world.delete(target)
        await world.clock.advance(5)
        assert not world.exists(target)
        assert "namespaces that cannot be terminated" in loops.check("namespace-termination")

    _terminating(scenario)


def test_budgets_are_current_after_the_history_and_a_full_disk_have_passed_by() -> None:
    async def scenario(world: _World, loops: BackgroundLoops) -> None:
        budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "web"}}}}
        world.storage.full = False
        await world.create("poddisruptionbudgets", budget, group="policy")
        await world.clock.advance(1)
        for number in range(2 * HISTORY.changes):
            document = pod(f"p-{number}", nodeName="n")
            document["metadata"]["labels"] = {"app": "web"}
            await world.create("pods", document)
            world.storage.full = True  # the budget cannot be written
            await world.clock.advance(0)
            world.storage.full = False
        await world.clock.advance(60)
        found = world.get("poddisruptionbudgets", "b", group="policy")
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
    world = _World()

    async def main() -> None:
        definitions = world.of("customresourcedefinitions", "damaged", group="apiextensions.k8s.io")
        await world.storage.create(definitions.key, b'{"metadata":{"name":"damaged"}}')
        await world.create("customresourcedefinitions", _definition("things"), group="apiextensions.k8s.io")
        custom_resources = CustomResources(world.environment)
        custom_resources.load()
        assert world.environment.registry.stored("example.io", "things") is not None
        assert custom_resources.check().startswith("damaged: KeyError")

    asyncio.run(main())


def test_definitions_are_listed_anew_when_their_loop_starts_anew() -> None:
    world = _World()

    async def main() -> None:
        for name in ("things", "others"):
            await world.create("customresourcedefinitions", _definition(name), group="apiextensions.k8s.io")
        custom_resources = CustomResources(world.environment)
        custom_resources.load()
        others = world.of("customresourcedefinitions", "others.example.io", group="apiextensions.k8s.io")
        await world.storage.delete(others.key, 2)
        custom_resources.load()
        served = [r.plural for r in world.environment.registry if r.group == "example.io"]
        assert (served, world.environment.registry.stored("", "pods") is not None) == (["things"], True)

    asyncio.run(main())


def test_a_damaged_webhook_configuration_does_not_put_others_out_of_force() -> None:
    world = _World()

    async def main() -> None:
        group = "admissionregistration.k8s.io"
        damaged = world.of(VALIDATING, "damaged", group=group)
        await world.storage.create(damaged.key, b'{"metadata":{"name":"damaged"},"webhooks":[{}]}')
        webhook = {
            "name": "good.example.io", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }  # fmt: skip
        await world.create(VALIDATING, {"metadata": {"name": "good"}, "webhooks": [webhook]}, group=group)
        configurations = Configurations(world.storage, world.environment.registry, VALIDATING)
        configurations.load()
        assert [webhook.name for webhook in configurations.webhooks] == ["good.example.io"]
        assert configurations.check() == "damaged: KeyError: 'name'"

    asyncio.run(main())
