"""A key of the SLO ConfigMap that cannot be used: it is told on the ConfigMap, and the last good value stays in force
until it is corrected; every key by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, NODE_RESOURCE_TOPOLOGIES, NODE_SLOS, NODES
from koordinator.kube.event_series import EVENTS_V1
from tests.in_memory_api import Document, InMemoryApi
from tests.manager.broken_input.bench import COLOCATION, CONFIG, SYSTEM, ManagerBench
from tests.manager.broken_input.documents import BAD, bad_metric, bad_node, bad_topology


class Key(NamedTuple):
    """A key, the reason of events about it, three values that can be used, and what each of them amounts to."""

    name: str
    reason: str
    value: Callable[[int], Document]
    in_force: Callable[[InMemoryApi], Any]
    """Of what the manager has written, the part that follows the key."""
    amounts_to: Callable[[int], Any] = lambda number: number

    def __repr__(self) -> str:
        return self.name


def slo(part: str) -> Callable[[InMemoryApi], Any]:
    def look(cluster: InMemoryApi) -> Any:
        return at((cluster.found(NODE_SLOS, BAD) or {}).get("spec"), part)

    return look


def at(document: Any, path: str) -> Any:
    for name in path.split("."):
        if isinstance(document, list):
            document = document[int(name)] if document else None
        elif isinstance(document, dict):
            document = document.get(name)
    return document


CPU_NORMALIZATION = "node.koordinator.sh/cpu-normalization-ratio"


def annotation(name: str, node: str = BAD) -> Callable[[InMemoryApi], Any]:
    return lambda cluster: (cluster.found(NODES, node) or {})["metadata"]["annotations"].get(name)


def report_interval(cluster: InMemoryApi) -> Any:
    spec = (cluster.found(NODE_METRICS, BAD) or {}).get("spec")
    return at(spec, "metricCollectPolicy.reportIntervalSeconds")


KEYS = (
    Key(
        "colocation-config",
        "ColocationCfgUnmarshalFailed",
        lambda number: {"enable": True, "metricReportIntervalSeconds": number},
        report_interval,
    ),
    Key(
        "resource-threshold-config",
        "SLOCfgUnmarshalFailed",
        lambda number: {"clusterStrategy": {"cpuSuppressThresholdPercent": number}},
        slo("resourceUsedThresholdWithBE.cpuSuppressThresholdPercent"),
    ),
    Key(
        "resource-qos-config",
        "SLOCfgUnmarshalFailed",
        lambda number: {"clusterStrategy": {"beClass": {"memoryQOS": {"wmarkRatio": number}}}},
        slo("resourceQOSStrategy.beClass.memoryQOS.wmarkRatio"),
    ),
    Key(
        "cpu-burst-config",
        "SLOCfgUnmarshalFailed",
        lambda number: {"clusterStrategy": {"cpuBurstPercent": number}},
        slo("cpuBurstStrategy.cpuBurstPercent"),
    ),
    Key(
        "system-config",
        "SLOCfgUnmarshalFailed",
        lambda number: {"clusterStrategy": {"watermarkScaleFactor": number}},
        slo("systemStrategy.watermarkScaleFactor"),
    ),
    Key(
        "host-application-config",
        "SLOCfgUnmarshalFailed",
        lambda number: {"applications": [{"name": f"a{number}"}]},
        slo("hostApplications.0.name"),
        lambda number: f"a{number}",
    ),
    Key(
        "cpu-normalization-config",
        "CPUNormalizationCfgUnmarshalFailed",
        lambda number: {"enable": True, "defaultRatio": 1 + number / 100},
        annotation(CPU_NORMALIZATION),
        lambda number: f"1.{number}",
    ),
    Key(
        "resource-amplification-config",
        "ResourceAmplificationCfgUnmarshalFailed",
        lambda number: {"enable": True, "resourceAmplificationRatio": {"cpu": 1 + number / 100}},
        annotation("node.koordinator.sh/resource-amplification-ratio"),
        lambda number: f'{{"cpu":1.{number}}}',
    ),
)
FIRST, SECOND, DEFAULT = 20, 45, 30
UNUSABLE = {
    "cut off": '{"enable": true',
    "no JSON": "enable: true",
    "a list": "[]",
    "a text": '"on"',
    "a number": "5",
    "empty": " ",
    "nested without end": "[" * 20_000,
    "a field of another type": '{"clusterStrategy": 5, "enable": "yes", "applications": 7}',
    "a list of another type": '{"nodeStrategies": {}, "nodeConfigs": {}}',
}


def put_objects(bench: ManagerBench) -> None:
    node = bad_node()
    node["metadata"] = {"name": BAD, "annotations": {}, "labels": {}}
    bench.cluster.put(NODES, node)
    bench.cluster.put(NODE_METRICS, bad_metric())
    bench.cluster.put(NODE_RESOURCE_TOPOLOGIES, bad_topology())


def configurations(key: Key, value: Any) -> dict[str, Any]:
    """All other keys as they should be; colocation is on."""
    return {each.name: each.value(DEFAULT) for each in others(key)} | {key.name: value}


def others(key: Key) -> list[Key]:
    """All but the two ratios, of which one is multiplied by the other."""
    return [each for each in KEYS[:-2] if each is not key]


def run(bench: ManagerBench, story: Callable[[], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with bench.working():
            await story()

    asyncio.run(scenario())


def others_in_force(key: Key, cluster: InMemoryApi) -> bool:
    return all(each.in_force(cluster) == each.amounts_to(DEFAULT) for each in others(key))


@pytest.mark.parametrize("text", UNUSABLE.values(), ids=UNUSABLE.keys())
@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_the_last_good_value_stays_until_it_is_corrected(key: Key, text: str) -> None:
    check_stays(key, text)


@pytest.mark.parametrize("number", [2**63, 10**30])
@pytest.mark.parametrize("key", KEYS[:5], ids=repr)
def test_the_last_good_value_stays_when_a_number_is_too_large(key: Key, number: int) -> None:
    check_stays(key, key.value(number))


@pytest.mark.parametrize("key", KEYS[:4], ids=repr)
def test_the_last_good_value_stays_when_a_number_is_negative(key: Key) -> None:
    check_stays(key, key.value(-7))


def check_stays(key: Key, unusable: Any) -> None:
    bench = ManagerBench()
    put_objects(bench)
    bench.configure(configurations(key, key.value(FIRST)))

    async def story() -> None:
        assert key.in_force(bench.cluster) == key.amounts_to(FIRST)
        bench.configure(configurations(key, unusable))
        await bench.until_idle()
        assert key.in_force(bench.cluster) == key.amounts_to(FIRST)
        assert others_in_force(key, bench.cluster)
        (note,) = bench.notes(key.reason, CONFIG)
        assert note.startswith(f"{key.name}: failed to unmarshal ")
        assert bench.sample("koord_manager_slo_configuration_in_error", key=key.name) == 1
        bench.configure(configurations(key, key.value(SECOND)))
        await bench.until_idle()
        assert key.in_force(bench.cluster) == key.amounts_to(SECOND)
        assert bench.sample("koord_manager_slo_configuration_in_error", key=key.name) == 0

    run(bench, story)


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_a_replica_that_starts_with_a_broken_key_leaves_what_was_in_force(key: Key) -> None:
    cluster = InMemoryApi()
    first = ManagerBench(cluster)
    put_objects(first)
    first.configure(configurations(key, key.value(FIRST)))

    async def nothing() -> None: ...

    run(first, nothing)
    first.configure(configurations(key, "{"))
    second = ManagerBench(cluster)

    async def story() -> None:
        assert key.in_force(cluster) == key.amounts_to(FIRST)
        assert len(second.notes(key.reason, CONFIG)) == 1
        second.configure(configurations(key, key.value(SECOND)))
        await second.until_idle()
        assert key.in_force(cluster) == key.amounts_to(SECOND)

    run(second, story)


def test_a_replica_that_starts_with_a_broken_normalization_key_takes_no_batch_cpu_away() -> None:
    """What a core is worth stays on the node, so batch CPU goes on being counted with it."""
    cluster = InMemoryApi()
    first = ManagerBench(cluster)
    first.add_node("n1", labels={"node.koordinator.sh/cpu-normalization-enabled": "true"})
    first.cluster.put(
        NODE_RESOURCE_TOPOLOGIES, {**bad_topology(), "metadata": {**bad_topology()["metadata"], "name": "n1"}}
    )
    good = {"colocation-config": COLOCATION, "cpu-normalization-config": {"enable": True, "defaultRatio": 1.2}}
    first.configure(good)
    first.report("n1")
    offered: list[int | None] = []

    async def until_scaled() -> None:
        await first.until_idle()
        assert annotation(CPU_NORMALIZATION, "n1")(cluster) == "1.20"
        offered.append(first.offered("n1"))

    run(first, until_scaled)
    first.configure(good | {"cpu-normalization-config": "{"})
    second = ManagerBench(cluster)

    async def nothing_is_shrunk() -> None:
        second.report("n1")
        await second.until_idle()
        assert second.offered("n1") == offered[0]
        assert annotation(CPU_NORMALIZATION, "n1")(cluster) == "1.20"

    run(second, nothing_is_shrunk)


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_a_config_map_that_is_deleted_and_made_anew(key: Key) -> None:
    bench = ManagerBench()
    put_objects(bench)
    bench.configure(configurations(key, key.value(FIRST)))

    async def story() -> None:
        bench.cluster.remove(CONFIG_MAPS, CONFIG, SYSTEM)
        await bench.until_idle()
        assert key.in_force(bench.cluster) == key.amounts_to(FIRST)
        bench.configure(configurations(key, "{"))
        await bench.until_idle()
        assert key.in_force(bench.cluster) == key.amounts_to(FIRST)
        bench.cluster.remove(CONFIG_MAPS, CONFIG, SYSTEM)
        bench.configure(configurations(key, key.value(SECOND)))
        await bench.until_idle()
        assert key.in_force(bench.cluster) == key.amounts_to(SECOND)
        assert bench.sample("koord_manager_slo_configuration_in_error", key=key.name) == 0

    run(bench, story)


def test_every_broken_key_is_reported_when_all_are_broken_at_once() -> None:
    bench = ManagerBench()
    put_objects(bench)
    bench.configure({key.name: key.value(FIRST) for key in KEYS})

    async def story() -> None:
        bench.configure({key.name: "{" for key in KEYS})
        await bench.until_idle()
        reported = {
            note.partition(":")[0] for reason in {key.reason for key in KEYS} for note in bench.notes(reason, CONFIG)
        }
        assert reported == {key.name for key in KEYS}
        assert [key.in_force(bench.cluster) for key in KEYS[:-2]] == [key.amounts_to(FIRST) for key in KEYS[:-2]]

    run(bench, story)


SOURCES = {
    "ColocationCfgUnmarshalFailed": "noderesource-controller",
    "SLOCfgUnmarshalFailed": "nodeslo-controller",
    "CPUNormalizationCfgUnmarshalFailed": "noderesource",
    "ResourceAmplificationCfgUnmarshalFailed": "noderesource",
}
"""Who says so in the original: people select events by it."""


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_the_event_comes_from_the_component_that_it_comes_from_in_the_original(key: Key) -> None:
    bench = ManagerBench()
    bench.configure({key.name: "{"})

    async def story() -> None:
        (event,) = [each for each in bench.cluster.all(EVENTS_V1) if each["reason"] == key.reason]
        assert event["reportingController"] == SOURCES[key.reason]

    run(bench, story)


def test_every_mistake_of_one_key_is_reported() -> None:
    bench = ManagerBench()
    strategy = {
        "nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]},
        "cpuSuppressThresholdPercent": 50,
    }
    wrong = {"name": "w", "nodeSelector": {"matchLabels": {"a": "b"}}, "cpuSuppressThresholdPercent": -1}
    bench.configure({"resource-threshold-config": {"nodeStrategies": [{"name": "v", **strategy}, wrong]}})

    async def story() -> None:
        (note,) = bench.notes("SLOCfgUnmarshalFailed", CONFIG)
        assert "the strategy 'v' of nodes (number 0)" in note
        assert "the strategy 'w' of nodes (number 1)" in note

    run(bench, story)
