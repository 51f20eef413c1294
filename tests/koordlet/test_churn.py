"""The whole agent while pods come and go: what it keeps in memory does not grow with those that have been."""

from __future__ import annotations

import asyncio
import gc
import shutil
import sys
from pathlib import Path

import pytest

from koordinator.koordlet.agent import Agent
from tests.koordlet.node_under_test import NodeUnderTest, pod

_AT_ONCE = 8
_LIFE = 2
"""Seconds after which each pod has made room for a new one."""
_BUDGET = 48 << 10
"""Bytes that may be kept more than before, whatever the number of pods that have been: 100 of each in two minutes."""


class Churn:
    """Pods that live for two seconds, each with a cgroup."""

    def __init__(self, node: NodeUnderTest) -> None:
        self._node = node
        self._born = 0

    async def pass_minutes(self, minutes: int) -> None:
        for _ in range(minutes * 60 // _LIFE):
            self._replace()
            await self._node.pass_seconds(_LIFE)

    def _replace(self) -> None:
        folder = self._node.machine.root / "sys/fs/cgroup/kubepods/burstable"
        for old in folder.glob("podchurn*"):
            shutil.rmtree(old)
        uids = [f"churn-{self._born + number}" for number in range(_AT_ONCE)]
        self._born += _AT_ONCE
        for uid in uids:
            cgroup = f"/sys/fs/cgroup/kubepods/burstable/pod{uid}"
            self._node.machine.write(f"{cgroup}/cpu.stat", "usage_usec 1000\nnr_periods 0\nnr_throttled 0\n")
            self._node.machine.write(f"{cgroup}/memory.stat", "anon 4096\nfile 0\ninactive_anon 0\nactive_anon 4096\n")
        self._node.pods = [pod("web", "0000-web"), *(pod(uid, uid) for uid in uids)]


@pytest.mark.parametrize("minutes", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_memory_stays_flat_while_pods_come_and_go(tmp_path: Path, minutes: int) -> None:
    """240 pods a minute: in two minutes more than most nodes see in a day."""

    async def kept() -> tuple[int, int]:
        node = NodeUnderTest(tmp_path)
        node.machine.write_numa_memory(0, 16 << 20)
        churn = Churn(node)
        async with node.running() as agent:
            # Windows are full, and what is loaded late is loaded.
            await churn.pass_minutes(3)
            before = _kept(node, agent)
            await churn.pass_minutes(minutes)
            return before, _kept(node, agent)

    before, after = asyncio.run(kept())
    assert after - before < _BUDGET


def _kept(node: NodeUnderTest, agent: Agent) -> int:
    """Bytes of all objects that may hold others; what the stand-ins have recorded is thrown away first, and histograms
    are scraped, which keep some thousand samples as they came until somebody does."""
    agent.metrics.both.exposition()
    node.client.calls.clear()
    node.asked.clear()
    gc.collect()
    return sum(map(sys.getsizeof, gc.get_objects()))
