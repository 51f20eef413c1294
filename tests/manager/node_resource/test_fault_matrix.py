"""Each write of the controller fails in each way that people have seen: what it does not touch is written meanwhile,
and in the end everything is written as it should be, once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Final

from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, NODE_RESOURCE_TOPOLOGIES, NODES
from koordinator.api.timestamps import format_time
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.manager.controllers import ControllerContext
from koordinator.manager.node_resource.controller import NodeResourceController
from koordinator.manager.options import Options
from tests.in_memory_api import ApiRequest, Hang, InMemoryApi
from tests.manager.node_resource.node_example import BATCH_CPU, BATCH_MEMORY, CONFIGURATION, usage
from tests.real_world.faulty_api_server import FAULTS, Rule

WRITES: Final = {
    "zones": ("noderesourcetopologies", ""),
    "amounts": ("nodes", "status"),
    "metadata": ("nodes", ""),
}
CELLS: Final = {f"{write}-{number}": (write, fault) for write in WRITES for number, fault in enumerate(FAULTS.values())}
GOOD: Final = "good"
RATIO: Final = "node.koordinator.sh/resource-amplification-ratio"
_FIELDS: Final = ("capacity", "allocatable", "available")
_LONG: Final = 200.0
"""Longer than every request, and than every pause before the next one."""


@dataclass
class Managed:
    """Nodes of 100 CPUs in two zones, whose amounts the controller writes."""

    api: InMemoryApi
    clock: ManualClock
    names: tuple[str, ...]

    def add(self, name: str) -> None:
        amounts = {"cpu": "100", "memory": "120G", "vendor/x": "3"}
        status = {"capacity": amounts, "allocatable": amounts}
        self.api.put(NODES, {"metadata": {"name": name}, "spec": {}, "status": status})
        resources = [
            {"name": "cpu", **dict.fromkeys(_FIELDS, "50")},
            {"name": "vendor/x", **dict.fromkeys(_FIELDS, "1")},
        ]
        zones = [{"name": f"node-{number}", "type": "Node", "resources": resources} for number in range(2)]
        topology = {"metadata": {"name": name}, "topologyPolicies": ["None"], "zones": zones}
        self.api.put(NODE_RESOURCE_TOPOLOGIES, topology)

    def report(self, used: int) -> None:
        """Each node's agent: ``used`` is the milli-CPUs of what runs beside the pods."""
        for name in self.names:
            status = {
                "updateTime": format_time(self.clock.now()),
                "nodeMetric": {"nodeUsage": usage("40", "45G"), "systemUsage": usage(f"{used}m", "12G")},
            }
            self.api.put(NODE_METRICS, {"metadata": {"name": name}, "spec": {}, "status": status})

    def configure(self, **more: str) -> None:
        name, namespace = Options().slo_config_name, Options().config_namespace
        data = {"colocation-config": CONFIGURATION, **more}
        self.api.put(CONFIG_MAPS, {"metadata": {"name": name, "namespace": namespace}, "data": data})

    def amount(self, name: str) -> str | None:
        found: str | None = self.api.document(NODES, name)["status"]["allocatable"].get(BATCH_CPU)
        return found

    def zones(self, name: str) -> list[list[tuple[str, str]]]:
        zones = self.api.document(NODE_RESOURCE_TOPOLOGIES, name)["zones"]
        return [[(each["name"], each["allocatable"]) for each in zone["resources"]] for zone in zones]

    def has_zones(self, name: str, cpu: str) -> bool:
        """Each zone has what it had, and batch amounts once."""
        names = sorted(("cpu", BATCH_CPU, BATCH_MEMORY, "vendor/x"))
        return all(
            sorted(dict(zone)) == names and len(zone) == len(names) and dict(zone)[BATCH_CPU] == cpu
            for zone in self.zones(name)
        )

    def writes(self) -> Counter[str]:
        """What was requested, by node."""
        return Counter(each.name for each in self.api.requests if each.verb == "patch" and each.plural in _PLURALS)


_PLURALS: Final = frozenset(plural for plural, _ in WRITES.values())


@asynccontextmanager
async def managed(*names: str) -> AsyncIterator[Managed]:
    """Everything goes by one clock, and has been written once."""
    clock = ManualClock()
    async with InMemoryApi(clock).running() as api:
        client = api.client()
        informers = InformerSet(client, clock=clock, random=Random(1))
        events = EventBroadcaster(client, instance="test", clock=clock, random=Random(1))
        context = ControllerContext(client, informers, events, Options(), Metrics(), clock, Random(1))
        controller = NodeResourceController(context)
        made = Managed(api, clock, names)
        made.configure()
        for name in names:
            made.add(name)
        made.report(7_000)
        async with informers.started(), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(controller.run())
            for _ in names:
                await clock.advance(0.1)
            assert {made.amount(name) for name in names} == {"58k"}
            yield made
            running.cancel()
        await client.close()


async def _survive_the_matrix() -> None:
    async with managed(*CELLS, GOOD) as made:
        rules = made.api.faults.rules
        for name, (write, fault) in CELLS.items():
            plural, subresource = WRITES[write]
            rules.append(Rule(fault, "patch", plural, subresource, name=name))
        before = made.writes()
        made.report(17_000)
        await made.clock.advance(_LONG)
        made.configure(
            **{"resource-amplification-config": '{"enable": true, "resourceAmplificationRatio": {"cpu": 2}}'}
        )
        await made.clock.advance(_LONG)
        assert all(rule.hits for rule in rules)
        for name, (write, _) in CELLS.items():
            assert write == "amounts" or made.amount(name) == "48k", name
            assert write == "zones" or made.has_zones(name, "24k"), name
        tries = made.writes() - before
        # A key that fails is tried again after a pause that doubles, of half a minute at most.
        assert max(tries.values()) < 2 * 2 * _LONG / 10, tries.most_common(3)
        assert tries[GOOD] == 3

        rules.clear()
        await made.clock.advance(_LONG)
        for name in made.names:
            node = made.api.document(NODES, name)
            assert (made.amount(name), node["status"]["allocatable"]["vendor/x"]) == ("48k", "3"), name
            assert made.has_zones(name, "24k"), name
            assert node["metadata"]["annotations"][RATIO] == '{"cpu":2.00}', name
        settled = made.writes()
        await made.clock.advance(_LONG)
        assert made.writes() == settled


def test_each_write_fails_in_each_way() -> None:
    asyncio.run(_survive_the_matrix())


def test_watches_that_expire_bring_no_crowd_of_lists_and_no_second_write() -> None:
    async def scenario() -> None:
        async with managed("n1") as made:
            requests = made.api.requests

            def expire(request: ApiRequest, done: bool) -> Exception | None:
                return ApiStatusError(410, "Expired", "too old") if request.verb == "watch" else None

            made.api.go_away()
            made.api.come_back()
            made.api.fault = expire
            requests.clear()
            made.report(17_000)
            await made.clock.advance(60)
            lists = Counter(each.plural for each in requests if each.verb == "list")
            assert max(lists.values()) <= 12, "a pause that doubles up to 15 seconds"
            assert (made.amount("n1"), made.has_zones("n1", "24k")) == ("48k", True)
            assert made.writes() == {"n1": 2}

    asyncio.run(scenario())


def test_zones_are_not_appended_again_where_the_cache_is_behind() -> None:
    """The answer to the first patch is lost, and the watch does not show it."""

    def hang(request: ApiRequest, done: bool) -> Exception | None:
        return Hang() if (request.verb, request.plural) == ("watch", "noderesourcetopologies") else None

    async def scenario() -> None:
        async with managed("n1") as made:
            made.add("n2")
            await made.clock.advance(1)
            made.api.fault = hang
            made.api.go_away()
            made.api.come_back()
            await made.clock.advance(60)
            lost = Rule(FAULTS["the answer is lost"], "patch", "noderesourcetopologies", times=1)
            made.api.faults.rules.append(lost)
            made.names = ("n2",)
            made.report(17_000)
            await made.clock.advance(60)
            assert (lost.hits, made.has_zones("n2", "24k")) == (["n2"], True)

    asyncio.run(scenario())


def test_a_clock_that_is_set_back_or_forward_stops_no_write() -> None:
    async def scenario() -> None:
        async with managed("n1") as made:
            steps = (17_000, -timedelta(days=1), "48k", "24k"), (27_000, timedelta(days=2), "38k", "19k")
            for used, step, whole, half in steps:
                made.clock.set_wall(made.clock.now() + step)
                made.report(used)
                await made.clock.advance(1)
                assert (made.amount("n1"), made.has_zones("n1", half)) == (whole, True)

    asyncio.run(scenario())


def test_small_differences_are_written_after_the_clock_was_set_back() -> None:
    async def scenario() -> None:
        async with managed("n1") as made:
            made.clock.set_wall(made.clock.now() - timedelta(days=1))
            made.report(7_002)
            await made.clock.advance(1)
            assert made.amount("n1") == "57998"

    asyncio.run(scenario())
