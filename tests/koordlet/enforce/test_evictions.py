"""Evictions of a whole agent: one after another, with pauses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from koordinator.api.kinds import PODS
from koordinator.koordlet.agent import Agent
from tests.in_memory_api import Hang
from tests.koordlet.node_under_test import GIB, MEMORY_STAT, NODE, NodeUnderTest

NAMES = ("a", "b", "c")
"""Best-effort pods of 2 GiB each."""


def best_effort(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "jobs", "uid": name, "labels": {"koordinator.sh/qosClass": "BE"}},
        "spec": {"priority": 5000, "containers": [{"name": "c", "image": "i"}]},
        "status": {
            "phase": "Running",
            "qosClass": "BestEffort",
            "containerStatuses": [{"name": "c", "containerID": f"containerd://{name}"}],
        },
    }


def pressed_node(root: Path, threshold: int, lower: int) -> NodeUnderTest:
    """Half of 16 GiB are used."""
    under_test = NodeUnderTest(root)
    under_test.gates = ("BEMemoryEvict",)
    under_test.add_capacity()
    settings = {"enable": True, "memoryEvictThresholdPercent": threshold, "memoryEvictLowerPercent": lower}
    under_test.show_slo({"resourceUsedThresholdWithBE": settings})
    under_test.pods += [best_effort(name) for name in NAMES]
    for name in NAMES:
        under_test.api.put(PODS, best_effort(name))
        for folder in (f"kubepods/besteffort/pod{name}", f"kubepods/besteffort/pod{name}/{name}"):
            cgroup = f"/sys/fs/cgroup/{folder}"
            stat = "usage_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"
            under_test.machine.write(f"{cgroup}/cpu.stat", stat)
            under_test.machine.write(f"{cgroup}/memory.stat", MEMORY_STAT.format(2 * GIB, 0))
    return under_test


def evicted(under_test: NodeUnderTest) -> list[str]:
    return [request.name for request in under_test.api.requests if request.subresource == "eviction"]


def test_after_an_eviction_there_is_a_pause(tmp_path: Path) -> None:
    """The memory that one pod releases is enough; kubelet and /proc/meminfo show it later."""

    async def watch() -> list[int]:
        under_test = pressed_node(tmp_path, 49, 48)
        counts = []
        async with under_test.running():
            await under_test.pass_seconds(3)
            under_test.pods = [pod for pod in under_test.pods if pod["metadata"]["name"] not in evicted(under_test)]
            await under_test.pass_seconds(9)
            for _ in range(6):
                counts.append(len(evicted(under_test)))
                await under_test.pass_seconds(1)
        return counts

    counts = asyncio.run(watch())
    assert counts[0] >= 1
    assert counts[-1] - counts[0] <= 1


def test_an_eviction_without_a_response_begins_the_pause(tmp_path: Path) -> None:
    """Three pods have to go. The API server hangs at the first, until the round's deadline, and may have done it."""

    async def watch() -> tuple[list[str], list[str], list[str]]:
        under_test = pressed_node(tmp_path, 12, 10)

        under_test.api.fault = lambda request, done: Hang() if request.name == "a" else None
        async with under_test.running():
            seconds = 0
            while not evicted(under_test):
                await under_test.pass_seconds(1)
                seconds += 1
                assert seconds < 20
            await under_test.pass_seconds(29)
            hanging = evicted(under_test)
            await under_test.pass_seconds(4)
            pausing = evicted(under_test)
            await under_test.pass_seconds(6)
            return hanging, pausing, evicted(under_test)

    assert asyncio.run(watch()) == (["a"], ["a"], ["a", "b", "c"])


def exposed(agent: Agent, name: str) -> list[str]:
    body, _ = agent.metrics.both.exposition()
    return [line for line in body.decode().splitlines() if line.startswith(f"koordlet_{name}{{")]


def test_which_pods_were_evicted_is_reported_for_five_minutes_and_how_many_for_ever(tmp_path: Path) -> None:
    async def watch() -> list[list[str]]:
        under_test = pressed_node(tmp_path, 49, 48)
        async with under_test.running() as agent:
            await under_test.pass_seconds(2)
            under_test.pods = under_test.pods[:1]
            reported = [exposed(agent, "pod_eviction_detail")]
            await under_test.clock.advance(301)
            reported += [exposed(agent, "pod_eviction_detail"), exposed(agent, "pod_eviction")]
        return reported

    detail, later, total = asyncio.run(watch())
    labels = f'node="{NODE}",pod_name="a",pod_namespace="jobs",reason="evicted"'
    assert [sorted(line.partition("{")[2].partition("}")[0].split(",")) for line in detail] == [labels.split(",")]
    assert (later, total) == ([], [f'koordlet_pod_eviction{{node="{NODE}",reason="evicted"}} 1.0'])
