"""What a pass of koord-manager's recommender costs: one over all Recommendations, with fresh samples of all pods.

The API server is the embedded one, in the same process. Only passes without writes are measured: statuses are written
every ten minutes at least, and what such a write costs is mostly the API server's.

usage: python -m benchmarks.recommender_pass [--recommendations 1000] [--pods 20] [--passes 3]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from koordinator.api.kinds import NODE_METRICS, PODS, RECOMMENDATIONS
from koordinator.api.timestamps import format_time
from koordinator.base.clock import SystemClock
from koordinator.manager.options import Options
from koordinator.manager.recommender.controller import RecommenderController
from koordinator.model.overcommit.node_report import NODE_REPORTS
from tests.in_memory_api import InMemoryApi
from tests.manager.controller_bench import ControllerBench
from tests.waiting import wait_for

_NAMESPACES = 20
_PODS_OF_A_NODE = 20
_PASSES = "koord_manager_recommender_loop_duration_seconds_count"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recommender_pass")
    parser.add_argument("--recommendations", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=20, help="of each Recommendation")
    parser.add_argument("--passes", type=int, default=3)
    options = parser.parse_args(arguments)
    seconds = asyncio.run(_measure(options.recommendations, options.pods, options.passes))
    report = {
        "benchmark": "recommender_pass",
        "recommendations": options.recommendations,
        "pods": options.recommendations * options.pods,
        "cpu_seconds": round(statistics.median(seconds), 3),
    }
    print(json.dumps(report))
    return 0


async def _measure(recommendations: int, pods: int, passes: int) -> list[float]:
    """Seconds of CPU of each pass."""
    async with InMemoryApi(SystemClock()).running() as api:
        names = [(f"ns{number % _NAMESPACES}", f"web{number}") for number in range(recommendations)]
        _create(api, names, pods)
        bench = ControllerBench(api.client(), Options())
        bench.clock.set_wall(datetime.now(UTC) + timedelta(minutes=1))
        _report(api, names, pods, bench.clock.now())
        async with bench.working(RecommenderController(bench.context)):
            await wait_for(lambda: _passed(bench) == 1)
            return [await _pass(api, bench, names, pods) for _ in range(passes)]


async def _pass(api: InMemoryApi, bench: ControllerBench, names: Sequence[tuple[str, str]], pods: int) -> float:
    # No pass begins before the clock moves; the time of the reports is that of the pass.
    at = bench.clock.now().replace(microsecond=0) + timedelta(seconds=30)
    _report(api, names, pods, at)
    reports = bench.informers.informer(NODE_REPORTS)
    await wait_for(lambda: all(each.status.update_time == at for each in reports.list()))
    before, started = _passed(bench), time.process_time()
    await bench.clock.advance(60)
    await wait_for(lambda: _passed(bench) > before)
    return time.process_time() - started


def _passed(bench: ControllerBench) -> float:
    return bench.metrics.registry.get_sample_value(_PASSES, {"step": "checkpoints"}) or 0.0


def _create(api: InMemoryApi, names: Sequence[tuple[str, str]], pods: int) -> None:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    spec = {"nodeName": "n", "containers": [{"name": "main", "image": "x", "resources": resources}]}
    for namespace, name in names:
        labels = {"app": name}
        for number in range(pods):
            metadata = {"name": f"{name}-{number}", "namespace": namespace, "labels": labels}
            api.put(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})
        target = {"type": "podSelector", "podSelector": {"matchLabels": labels}}
        found = {"metadata": {"name": name, "namespace": namespace, "generation": 1}, "spec": {"target": target}}
        api.put(RECOMMENDATIONS, found)


def _report(api: InMemoryApi, names: Sequence[tuple[str, str]], pods: int, at: datetime) -> None:
    """The usage of all pods, by nodes of twenty."""
    usage = {"resources": {"cpu": "500m", "memory": "1Gi"}}
    used = [
        {"namespace": namespace, "name": f"{name}-{number}", "podUsage": usage}
        for namespace, name in names
        for number in range(pods)
    ]
    for start in range(0, len(used), _PODS_OF_A_NODE):
        status = {"updateTime": format_time(at), "podsMetric": used[start : start + _PODS_OF_A_NODE]}
        api.put(NODE_METRICS, {"metadata": {"name": f"n{start}"}, "status": status})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
