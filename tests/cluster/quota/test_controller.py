from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest

from koordinator.cluster.background import BackgroundLoops
from koordinator.cluster.quota.controller import QuotaController
from koordinator.cluster.storage.watch_cache import HistoryLimits
from koordinator.cluster.verbs.create import create
from tests.cluster.embedded import Verbs, pod


def test_quotas_count_anew_when_pods_changed_faster_than_they_could_follow(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> str:
        verbs, quotas = Verbs(limits=HistoryLimits(changes=3)), QuotaController()
        environment = replace(verbs.environment, quotas=quotas)
        loops = BackgroundLoops(environment.clock, Random(1))
        for name, body in quotas.loops(environment, loops.add).items():
            loops.add(name, body)
        running = asyncio.create_task(loops.run())
        await verbs.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "100"}}})
        await _until(verbs, "0")
        for number in range(10):
            await create(environment, verbs.target("pods"), pod(f"p{number}"))
        await _until(verbs, "10")
        stored = verbs.storage.list(verbs.target("pods").prefix).items[:8]
        # One commit, of which the store keeps less than half as history.
        await asyncio.gather(*(verbs.storage.delete(each.key, each.revision) for each in stored))
        await _until(verbs, "2")
        running.cancel()
        await asyncio.wait((running,))
        return _used(verbs)

    assert asyncio.run(scenario()) == "2"
    assert "resource-quota-of-pods fell behind and lists anew" in caplog.text


async def _until(verbs: Verbs, used: str) -> None:
    async with asyncio.timeout(10):
        while _used(verbs) != used:
            await asyncio.sleep(0)


def _used(verbs: Verbs) -> str:
    quota = verbs.get("resourcequotas", "q") or {}
    used: str = ((quota.get("status") or {}).get("used") or {}).get("pods") or ""
    return used
