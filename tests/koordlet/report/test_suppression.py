"""What the NodeMetric tells of best-effort pods that are held down."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from koordinator.base.clock import ManualClock
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.enforce.strategies.cpu_suppress import OWNER, decide
from koordinator.koordlet.report.suppression import SuppressionReport
from koordinator.node.kernel_files import CPU_QUOTA, CPUSET, Target
from tests.koordlet.enforce.executor.fake_kernel import FakeKernel
from tests.koordlet.enforce.strategies.qos_fixtures import BEST_EFFORT, best_effort, pod_usage, snapshot, suppression
from tests.koordlet.suppressed_node import SuppressedNode


def test_the_node_metric_says_how_much_they_have_since_when_and_why(tmp_path: Path) -> None:
    async def run() -> None:
        node = SuppressedNode(tmp_path)
        async with node.running():
            await node.pass_seconds(30)
            node.pod_cores = 1.25
            await node.pass_seconds(35)
        pods = {each["name"]: each.get("extensions") for each in node.status["podsMetric"]}
        assert pods["web"] is None
        assert pods["job"]["Object"]["suppression"] == {
            "policy": "cfsQuota",
            "cpus": 0.85,
            "since": "2026-01-01T00:00:30Z",
            "why": "65 % of 4 CPUs, less 1.25 CPUs of other pods and 0.5 CPUs of the system",
        }

    asyncio.run(run())


class Node:
    """Of 8 CPUs; rounds of CPU suppress over a kernel in memory."""

    def __init__(self, **options: Any) -> None:
        self.clock, self.kernel = ManualClock(), FakeKernel()
        self.kernel.add(Target(CPU_QUOTA, BEST_EFFORT), -1)
        for folder in (BEST_EFFORT, f"{BEST_EFFORT}/pod0", f"{BEST_EFFORT}/pod0/c"):
            self.kernel.add(Target(CPUSET, folder), frozenset(range(8)))
        self.executor: Executor = self.kernel.executor(self.clock, **options)
        self.report = SuppressionReport(self.executor, self.clock)

    def round(
        self, job: float, policy: dict[str, Any] | None = None, web: float = 2.0, *, is_enabled: bool = True
    ) -> None:
        """Ten seconds later, ``web`` and the best-effort pod ``job`` use so many cores."""
        asyncio.run(self.clock.advance(10))
        settings = {"cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"} | (policy or {})
        pods = (pod_usage("web", cpu=web), pod_usage("job", "BE", cpu=job))
        shown = self.kernel.value(Target(CPU_QUOTA, BEST_EFFORT))
        assert isinstance(shown, int)
        given = snapshot(
            policy=suppression(**settings), pods=pods, node_cpu=web + job, best_effort=best_effort(quota=shown)
        )
        decision = decide(given, is_enabled=is_enabled)
        self.report.observe(given, decision)
        if decision.settings is not None:
            self.executor.submit(OWNER, decision.settings)
        self.executor.apply()

    @property
    def reported(self) -> dict[str, Any]:
        """By UID."""
        return {uid: each["suppression"] for uid, each in self.report.extensions().items()}


def test_a_limit_that_stays_keeps_its_time() -> None:
    node = Node()
    for job in (4.0, 3.2, 3.2):
        node.round(job)
    (found,) = node.reported.values()
    assert (found["cpus"], found["since"]) == (3.2, "2026-01-01T00:00:10Z")
    node.round(3.2, web=3.0)
    (found,) = node.reported.values()
    assert (found["cpus"], found["since"]) == (2.2, "2026-01-01T00:00:40Z")


def test_the_least_is_named_where_the_rest_would_be_less() -> None:
    node = Node()
    node.round(4.0, {"cpuSuppressMinPercent": 25}, web=4.0)
    (found,) = node.reported.values()
    assert (found["cpus"], found["why"]) == (2.0, "25 % of 8 CPUs are what they have at least")


def test_pods_that_stay_below_by_themselves_are_not_held_down() -> None:
    node = Node()
    for _ in range(3):
        node.round(2.8)
    assert node.reported == {}


def test_it_is_reported_for_a_minute_after_they_wanted_more() -> None:
    node = Node()
    node.round(3.2)
    for _ in range(6):
        node.round(0.3)
    assert list(node.reported) == ["uid-job"]
    node.round(0.3)
    assert node.reported == {}


def test_a_figure_that_is_missing_changes_nothing() -> None:
    node = Node()
    node.round(3.2)
    before = node.reported
    nothing = snapshot(policy=None)
    node.report.observe(nothing, decide(nothing))
    assert node.reported == before


@pytest.mark.parametrize("off", [{"is_enabled": False}, {"policy": {"enable": False}}])
def test_what_is_switched_off_is_not_told(off: dict[str, Any]) -> None:
    node = Node()
    node.round(3.2)
    node.round(3.2, **off)
    assert node.reported == {}


def test_what_is_only_observed_is_not_told() -> None:
    node = Node(observe_only=True)
    node.round(3.2)
    assert node.reported == {}


def test_what_the_kernel_refuses_is_not_told() -> None:
    node = Node()
    node.kernel.refusals[node.kernel.codec.path(Target(CPU_QUOTA, BEST_EFFORT)) or ""] = errno.EBUSY
    node.round(3.2)
    assert node.reported == {}


def test_cpus_are_counted_where_cpus_are_taken_away() -> None:
    node = Node()
    node.round(4.0, {"cpuSuppressPolicy": "cpuset"})
    (found,) = node.reported.values()
    assert (found["policy"], found["cpus"]) == ("cpuset", 4)
