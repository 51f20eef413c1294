"""Annotations and labels of nodes, and profiles of quotas, that cannot be used: it is told, and the rest counts."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.kinds import ELASTIC_QUOTA_PROFILES, ELASTIC_QUOTAS, NODES
from tests.manager.broken_input.bench import ManagerBench, node
from tests.manager.broken_input.documents import BAD, bad_quota, bad_quota_profile
from tests.manager.broken_input.neighbours import READABLE, corrected, problems, run, with_neighbour
from tests.real_world.garbage import replaced

RESERVATION = "node.koordinator.sh/reservation"
STRATEGY = "node.koordinator.sh/colocation-strategy"
THIRD_PARTY = "node.koordinator.sh/thirdPartyAllocations"
GIVEN_AWAY = '{"allocations": [{"priority": "koord-batch", "resources": {"kubernetes.io/batch-cpu": "%s"}}]}'


@pytest.mark.parametrize(
    ("key", "text", "said", "offered"),
    [
        (RESERVATION, "{", "reserves nothing", 25_000),
        (RESERVATION, '{"resources": {"cpu": "abc"}}', "'abc' is not a quantity", 25_000),
        (RESERVATION, '{"reservedCPUs": "0-"}', "reserves nothing", 25_000),
        (RESERVATION, '{"reservedCPUs": "0-99999999999999999999"}', "reserves nothing", 25_000),
        (RESERVATION, '{"resources": {"cpu": "-5"}}', "", 25_000),
        (RESERVATION, '{"resources": {"cpu": "1e30"}}', "", 0),
        (THIRD_PARTY, "{", "takes nothing off", 25_000),
        (THIRD_PARTY, GIVEN_AWAY % "-5", "", 25_000),
        (THIRD_PARTY, GIVEN_AWAY % "1e30", "", 0),
        (THIRD_PARTY, GIVEN_AWAY % "abc", "takes nothing off", 25_000),
    ],
)
def test_annotations_of_a_node(key: str, text: str, said: str, offered: int) -> None:
    bench = with_neighbour()
    bench.cluster.put(NODES, node(BAD, annotations={key: text}))

    async def story() -> None:
        assert bench.offered(BAD) == offered
        assert bool(problems(bench)) == bool(said)
        assert said in " ".join(problems(bench))
        bench.cluster.put(NODES, node(BAD))
        await corrected(bench)

    run(bench, story)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"cpuReclaimThresholdPercent": -5}', '{"cpuReclaimThresholdPercent": 1e30}', "abc", ""]
)
def test_a_strategy_of_a_nodes_own_that_cannot_be_used_is_reported_and_the_clusters_applies(
    text: str,
) -> None:
    bench = with_neighbour()
    bench.cluster.put(NODES, node(BAD, annotations={STRATEGY: text}))

    async def story() -> None:
        assert bench.offered(BAD) == 25_000
        assert problems(bench)[0].startswith(f"annotation {STRATEGY}: ")
        bench.cluster.put(NODES, node(BAD, annotations={STRATEGY: '{"cpuReclaimThresholdPercent": 75}'}))
        await bench.until_offered(BAD, 35_000)
        assert problems(bench) == ()

    run(bench, story)


@pytest.mark.parametrize("label", ["node.koordinator.sh/cpu-reclaim-ratio", "node.koordinator.sh/memory-reclaim-ratio"])
@pytest.mark.parametrize("text", ["abc", "NaN", "1e30", "", "50p"])
def test_a_ratio_label_that_cannot_be_used_is_reported_and_the_clusters_ratio_applies(label: str, text: str) -> None:
    bench = with_neighbour()
    bench.cluster.put(NODES, node(BAD, labels={label: text}))

    async def story() -> None:
        assert bench.offered(BAD) == 25_000
        assert problems(bench)[0].startswith(f"label {label}: {text!r} is not a ratio")
        bench.cluster.put(NODES, node(BAD, labels={label: "0.65"}))
        await bench.until_idle()
        assert problems(bench) == ()

    run(bench, story)


@pytest.mark.parametrize("value", READABLE)
def test_a_quota_of_a_profile_holds_what_its_nodes_have(value: Any) -> None:
    """Whatever a quota said before, and whatever one of the nodes says that it has."""
    bench = with_neighbour()
    profile = replaced(
        bad_quota_profile(), ("spec",), {"quotaName": "q", "nodeSelector": {"matchLabels": {"pool": "q"}}}
    )
    quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"min": {"cpu": value}, "max": {"cpu": value}}}
    bench.cluster.put(ELASTIC_QUOTA_PROFILES, profile)
    bench.cluster.put(ELASTIC_QUOTAS, quota)
    bench.add_node("n", labels={"pool": "q"})

    async def story() -> None:
        found = bench.cluster.found(ELASTIC_QUOTAS, "q", "default")
        assert found is not None
        assert found["spec"]["min"]["cpu"] == "100"
        bench.cluster.put(NODES, replaced(node("n", labels={"pool": "q"}), ("status", "allocatable", "cpu"), value))
        await bench.clock.advance(11)
        bench.cluster.put(NODES, node("n", labels={"pool": "q"}))
        await bench.clock.advance(11)
        found = bench.cluster.found(ELASTIC_QUOTAS, "q", "default")
        assert found is not None
        assert found["spec"]["min"]["cpu"] == "100"

    run(bench, story)


@pytest.mark.parametrize("ratio", ["-5", "abc", "NaN", "1e400", "0", ""])
def test_a_quota_profile_says_which_ratio_cannot_be_used(ratio: str) -> None:
    bench = ManagerBench()
    bench.cluster.put(ELASTIC_QUOTA_PROFILES, replaced(bad_quota_profile(), ("spec", "resourceRatio"), ratio))
    bench.cluster.put(ELASTIC_QUOTAS, bad_quota())

    async def story() -> None:
        notes = bench.notes("InvalidProfile", BAD)
        assert notes
        assert notes[0].startswith(f"spec.resourceRatio: {ratio!r} is not usable")
        assert bench.cluster.found(ELASTIC_QUOTAS, "bad-root", "default") is not None

    run(bench, story)


@pytest.mark.parametrize("text", ["{", "[1]", '"cpu"', "cpu,memory", "[" * 5000])
def test_a_quota_profile_says_which_resource_keys_cannot_be_used(text: str) -> None:
    bench = ManagerBench()
    place = ("metadata", "annotations", "quota.scheduling.koordinator.sh/resource-keys")
    bench.cluster.put(ELASTIC_QUOTA_PROFILES, replaced(bad_quota_profile(), place, text))

    async def story() -> None:
        (note,) = bench.notes("InvalidProfile", BAD)
        assert "resource-keys]: " in note
        quota = bench.cluster.found(ELASTIC_QUOTAS, "bad-root", "default")
        assert quota is not None
        assert set(quota["spec"]["min"]) == {"cpu", "memory"}

    run(bench, story)


def test_a_quota_profile_whose_selector_cannot_be_read_leaves_its_quota() -> None:
    bench = ManagerBench()
    bench.add_node("n", labels={"pool": "bad"})
    bench.cluster.put(ELASTIC_QUOTA_PROFILES, bad_quota_profile())
    wrong = {"matchExpressions": [{"key": "pool", "operator": "Is"}]}

    async def story() -> None:
        before = bench.cluster.found(ELASTIC_QUOTAS, "bad-root", "default")
        assert before is not None
        bench.cluster.put(ELASTIC_QUOTA_PROFILES, replaced(bad_quota_profile(), ("spec", "nodeSelector"), wrong))
        await bench.clock.advance(30)
        assert bench.cluster.found(ELASTIC_QUOTAS, "bad-root", "default") == before
        assert bench.notes("InvalidProfile", BAD)[0].startswith("spec.nodeSelector: ")
        bench.cluster.put(ELASTIC_QUOTA_PROFILES, bad_quota_profile())
        bench.cluster.remove(NODES, "n")
        await bench.clock.advance(30)
        quota = bench.cluster.found(ELASTIC_QUOTAS, "bad-root", "default")
        assert quota is not None
        assert quota["spec"]["min"]["cpu"] == "0"

    run(bench, story)
