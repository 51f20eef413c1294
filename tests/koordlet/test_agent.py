"""The whole agent: what it reports, and how it bears what goes wrong around it."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.kinds import NODE_METRICS
from koordinator.kube.errors import ApiStatusError
from koordinator.node.errors import MissingFileError
from tests.koordlet.node_under_test import GIB, POD_FOLDER, NodeUnderTest, pod

Story = Callable[[NodeUnderTest], Awaitable[None]]


@pytest.fixture
def node(tmp_path: Path) -> NodeUnderTest:
    return NodeUnderTest(tmp_path)


def play(node: NodeUnderTest, story: Story) -> dict[str, Any]:
    """Run the agent through a story; the status that it has written at the end."""

    async def run() -> None:
        async with node.running():
            await story(node)

    asyncio.run(run())
    return node.status


async def two_minutes(node: NodeUnderTest) -> None:
    await node.pass_seconds(125)


def usage(cpu: str, memory: str) -> dict[str, Any]:
    return {"resources": {"cpu": cpu, "memory": memory}}


def cpu_of(status: dict[str, Any], name: str) -> str:
    return str(status["nodeMetric"][name]["resources"]["cpu"])


def test_the_report_of_a_node_that_runs_as_it_should(node: NodeUnderTest) -> None:
    status = play(node, two_minutes)
    figures = ("avg", "p50", "p90", "p95", "p99")
    assert status == {
        "updateTime": "2026-01-01T00:02:01Z",
        "nodeMetric": {
            "nodeUsage": usage("2", "8Gi"),
            "systemUsage": usage("1500m", "7Gi"),
            "aggregatedNodeUsages": [{"usage": dict.fromkeys(figures, usage("2", "8Gi")), "duration": "1m0s"}],
            "aggregatedSystemUsages": [{"usage": dict.fromkeys(figures, usage("1500m", "7Gi")), "duration": "1m0s"}],
        },
        "podsMetric": [
            {
                "name": "web",
                "namespace": "shop",
                "podUsage": usage("500m", "1Gi"),
                "priority": "koord-prod",
                "qos": "LS",
            }
        ],
        "hostApplicationMetric": [],
        # Of a pod and a system that have used the same all along: each the end of its bucket, and 10 % on top.
        "prodPeakMetric": {"resource": {"resources": {"cpu": "2334m", "memory": "9543765746"}}},
        "prodReclaimableMetric": {"resource": {"resources": {"cpu": "666m", "memory": "0"}}},
    }


def test_no_report_before_the_interval_has_passed(node: NodeUnderTest) -> None:
    async def fifty_seconds(node: NodeUnderTest) -> None:
        await node.pass_seconds(50)

    assert play(node, fifty_seconds) == {}


def test_kubelet_away_leaves_the_pods_and_is_said_once(node: NodeUnderTest, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(30)
        node.kubelet_is_up = False
        await node.pass_seconds(90)
        node.kubelet_is_up = True
        await node.pass_seconds(15)
        assert "kubelet answers again" in caplog.text
        node.kubelet_is_up = False

    status = play(node, story)
    assert [item["name"] for item in status["podsMetric"]] == ["web"]
    assert caplog.text.count("the pods stay as kubelet last told them") == 1


def test_an_answer_without_any_pod_is_not_believed(node: NodeUnderTest) -> None:
    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(20)
        node.pods = []
        await node.pass_seconds(105)

    assert len(play(node, story)["podsMetric"]) == 1


def test_a_pod_that_ends_leaves_the_report_when_its_samples_have_left_the_window(node: NodeUnderTest) -> None:
    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(30)
        shutil.rmtree(node.machine.root / "sys/fs/cgroup" / POD_FOLDER)
        node.pod_is_there = False
        node.pods = [pod("other", "0000-other")]
        await node.pass_seconds(160)

    status = play(node, story)
    assert status["podsMetric"] == []
    assert cpu_of(status, "systemUsage") == "2"


def test_a_machine_file_that_breaks_costs_its_rounds_only(node: NodeUnderTest) -> None:
    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(30)
        node.break_meminfo = True
        await node.pass_seconds(20)
        node.break_meminfo = False
        await node.pass_seconds(75)

    assert cpu_of(play(node, story), "nodeUsage") == "2"


def test_the_api_server_away_costs_a_report_and_nothing_else(node: NodeUnderTest) -> None:
    refused: list[str] = []

    async def refuse(verb: str, name: str) -> None:
        if verb == "patch" and not refused:
            refused.append(name)
            raise ApiStatusError(503, "ServiceUnavailable", "etcd is away")

    node.client.before = refuse
    status = play(node, two_minutes)
    assert refused
    assert status["updateTime"] == "2026-01-01T00:02:00Z"


def play_to_no_report(node: NodeUnderTest, story: Story) -> None:
    async def run() -> None:
        async with node.running():
            await story(node)

    asyncio.run(run())
    assert node.client.documents(NODE_METRICS) == []


def test_a_node_without_a_node_metric_reports_nothing_and_says_so_once(
    node: NodeUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    for document in node.client.documents(NODE_METRICS):
        del node.client.objects[NODE_METRICS.qualified, "", document["metadata"]["name"]]
    play_to_no_report(node, two_minutes)
    assert caplog.text.count("this node has no NodeMetric") == 1


def test_a_node_metric_that_is_deleted_between_watch_and_report(node: NodeUnderTest) -> None:
    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(50)
        node.client.objects.clear()
        await node.pass_seconds(20)

    play_to_no_report(node, story)


@pytest.mark.parametrize("step", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_wall_clock_that_is_set_costs_no_usage(node: NodeUnderTest, step: timedelta) -> None:
    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(30)
        node.clock.set_wall(node.clock.now() + step)
        await node.pass_seconds(95)

    status = play(node, story)
    assert cpu_of(status, "nodeUsage") == "2"
    assert status["podsMetric"][0]["podUsage"] == usage("500m", "1Gi")


def test_a_counter_that_begins_anew_is_no_usage(node: NodeUnderTest) -> None:
    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(70)
        node.pod_cpu = 0
        await node.pass_seconds(55)

    assert play(node, story)["podsMetric"][0]["podUsage"] == usage("500m", "1Gi")


def test_a_thousand_pods_at_once(node: NodeUnderTest) -> None:
    """Kubelet tells them long before their cgroups are made."""

    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(115)
        node.pods = [pod("web", "0000-web"), *(pod(f"p{number}", f"uid-{number}") for number in range(1000))]
        await node.pass_seconds(10)

    status = play(node, story)
    assert [item["name"] for item in status["podsMetric"]] == ["web"]
    assert status["podsMetric"][0]["podUsage"] == usage("500m", "1Gi")


def test_without_any_cgroups_the_agent_ends_with_a_reason(tmp_path: Path) -> None:
    node = NodeUnderTest(tmp_path)
    shutil.rmtree(tmp_path / "sys/fs")
    with pytest.raises(ExceptionGroup) as raised:
        play(node, two_minutes)
    assert raised.group_contains(MissingFileError, match="no cgroup hierarchy is mounted there")


def test_it_stops_while_it_waits_for_its_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = NodeUnderTest(tmp_path)
    node.client.objects.clear()

    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(20)
        assert "waiting for node" not in caplog.text
        await node.pass_seconds(15)

    play_to_no_report(node, story)
    assert caplog.text.count("waiting for node node-1: not found") == 1


def test_a_pod_that_has_finished_is_not_looked_for(node: NodeUnderTest) -> None:
    finished = pod("done", "0000-done")
    finished["status"]["phase"] = "Succeeded"
    node.pods = [finished]
    assert play(node, two_minutes)["podsMetric"] == []


def test_usage_of_a_pod_whose_memory_grows(node: NodeUnderTest) -> None:
    async def story(node: NodeUnderTest) -> None:
        for _ in range(125):
            node.pod_memory += GIB // 64
            await node.pass_seconds(1)

    memory = play(node, story)["podsMetric"][0]["podUsage"]["resources"]["memory"]
    assert memory != "1Gi"
