"""What koordlet holds while pods come and go, all of which it measures: what belongs to the pods that there are."""

from __future__ import annotations

import asyncio
import gc
import shutil
import sys
import types
from array import array
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from koordinator.koordlet.agent import Agent
from koordinator.koordlet.observe.metric_cache.ring import RingMetricCache
from koordinator.koordlet.options import EnforcementOptions
from tests.koordlet.node_under_test import MEMORY_STAT, NodeUnderTest, pod

_PODS = 8
"""That are there at a time; they are others in each minute."""
_BIRTH = 30
"""The second of a minute at which they begin and the ones before end: NodeMetrics are written at its end."""
_STEP = 10
"""Seconds between two readings."""
_BUDGET = 800 << 10
"""Bytes that koordlet may hold for so few pods, without samples: they take some 600 KiB."""
_SPAN = 6
"""Minutes: long enough for all that is kept for a while to have gone, which is five minutes at most here."""


_NOT_FOLLOWED = (
    type, types.ModuleType, types.FrameType, types.CodeType, types.CoroutineType, RingMetricCache,
)  # fmt: skip
_FOREIGN = ("tests.", "koordinator.cluster.", "koordinator.kube.", "aiohttp", "logging", "asyncio")


class Churn:
    """Pods that live for a minute each."""

    def __init__(self, node: NodeUnderTest) -> None:
        self.node = node
        self.born = 0
        self.reported: set[str] = set()
        """UIDs of pods whose use the NodeMetric has told."""

    async def pass_minute(self) -> None:
        for second in range(0, 60, _STEP):
            if second == _BIRTH:
                self._replace()
            self.node.busy_ticks += 200 * _STEP
            self.node.write_machine_files()
            for folder in self._folders():
                self._write(folder, second)
            await self.node.clock.advance(_STEP)
        self.reported |= {item["name"] for item in self.node.status.get("podsMetric", ())}

    def _folders(self) -> list[str]:
        uids = [document["metadata"]["uid"] for document in self.node.pods]
        return [folder for uid in uids for folder in (f"pod{uid}", f"pod{uid}/{uid}")]

    def _replace(self) -> None:
        root = self.node.machine.root / "sys/fs/cgroup/kubepods/burstable"
        for document in self.node.pods:
            shutil.rmtree(root / f"pod{document['metadata']['uid']}", ignore_errors=True)
        self.node.pods = [_pod(f"pod-{self.born + number}") for number in range(_PODS)]
        self.born += _PODS

    def _write(self, folder: str, second: int) -> None:
        cgroup = f"/sys/fs/cgroup/kubepods/burstable/{folder}"
        stat = f"usage_usec {second * 100_000}\nnr_periods {second}\nnr_throttled 1\nthrottled_usec {second}\n"
        self.node.machine.write(f"{cgroup}/cpu.stat", stat)
        self.node.machine.write(f"{cgroup}/memory.stat", MEMORY_STAT.format(1 << 20, 4096))


def _pod(uid: str) -> dict[str, Any]:
    """Its container has an ID of its own, as each that a runtime makes."""
    document = pod(uid, uid)
    document["status"]["containerStatuses"][0]["containerID"] = f"containerd://{uid}"
    return document


@dataclass(frozen=True)
class Held:
    """What an object leads to: entries of dictionaries, lists, sets, queues and arrays; and bytes of everything."""

    entries: int
    size: int


def held(root: object) -> Held:
    """What koordlet has.

    Left out are those of the API server in memory, which keeps what it was told, and of the metric cache, which has a
    budget of its own (test_ring.py).
    """
    entries, size, seen, left = 0, 0, set[int](), [root]
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, _NOT_FOLLOWED) or type(each).__module__.startswith(_FOREIGN):
            continue
        seen.add(id(each))
        size += sys.getsizeof(each)
        if isinstance(each, types.FunctionType):
            # Not into the globals of its module.
            left.extend(each.__closure__ or ())
            continue
        if isinstance(each, dict | list | set | deque | array):
            entries += len(each)
        left.extend(gc.get_referents(each))
    return Held(entries, size)


async def _peak(churn: Churn, agent: Agent, minutes: int) -> Held:
    """Of what koordlet holds at the ends of minutes in which a Prometheus server has asked."""
    found = []
    for _ in range(minutes):
        await churn.pass_minute()
        agent.metrics.both.exposition()
        found.append(held(agent))
    return Held(max(each.entries for each in found), max(each.size for each in found))


@pytest.mark.parametrize("spans", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_what_is_held_is_that_of_the_pods_that_there_are(tmp_path: Path, spans: int) -> None:
    node = NodeUnderTest(tmp_path)
    node.collect_interval = _STEP
    node.enforcement = EnforcementOptions(_STEP, _STEP, _STEP, _STEP)
    node.prediction = replace(node.prediction, expiration=120.0)
    node.machine.write_numa_memory(0, 16 << 20)
    churn = Churn(node)

    async def peaks() -> list[Held]:
        async with node.running() as agent:
            await _peak(churn, agent, _SPAN)
            return [await _peak(churn, agent, _SPAN) for _ in range(spans)]

    first, *others = asyncio.run(peaks())
    assert len(churn.reported) > 0.8 * churn.born
    assert max(each.entries for each in others) <= first.entries + 4
    assert max(each.size for each in others) <= min(_BUDGET, 1.01 * first.size)
