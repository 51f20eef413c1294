"""The condition of a pod that its quota keeps waiting has the numbers of the quota as they are, not as they were."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial

from msgspec.structs import replace

from koordinator.api.kinds import ELASTIC_QUOTAS, PODS
from koordinator.api.pod import Pod
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.elastic_quota.plugin import ElasticQuota
from tests.model.quota_tree.quota_objects import wire_quota
from tests.scheduler.fakes import make_node
from tests.scheduler.plugins.elastic_quota.quota_cluster import of_quota, quota_profile
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

SOON = 6.0
MOST = 100
"""Conditions that are written at a time."""


def set_quota(api: SchedulerApi, cpu: int) -> None:
    api.store(wire_quota("a", max={"cpu": cpu, "memory": "64Gi"}), ELASTIC_QUOTAS)


def cluster(*waiting: Pod) -> SchedulerApi:
    """A quota of 4 CPUs, of which 3 are used."""
    api = SchedulerApi()
    api.store(make_node("n", cpu="1000", memory="64Gi", pods="500"))
    set_quota(api, 4)
    api.store(on_node(of_quota("runs", cpu="3")))
    for pod in waiting or [of_quota("p", cpu="3")]:
        api.store(pod)
    return api


def on_node(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name="n"))


def message(fixture: RunningScheduler, name: str = "p") -> str:
    (condition,) = fixture.api.pod(name).status.conditions
    return condition.message


def numbers(fixture: RunningScheduler) -> tuple[str, ...]:
    """Runtime and used CPUs, as the condition says."""
    found = re.search(r" runtime: cpu:(.+?),.* used: cpu:(.+?),", message(fixture))
    assert found is not None, message(fixture)
    return found.groups()


def writes(fixture: RunningScheduler) -> Counter[str]:
    return Counter(name for name, _, _ in fixture.api.conditions)


def test_the_max_of_the_quota_changes() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(1)
        assert numbers(fixture) == ("4", "3")
        attempts, events = len(fixture.scheduler.decisions.attempts("default/p")), len(fixture.events.notes)
        set_quota(fixture.api, 5)
        await fixture.until_idle(SOON)
        assert numbers(fixture) == ("5", "3")
        assert message(fixture).startswith("0/1 nodes are available: Insufficient quotas, quotaName: a, ")
        entry = fixture.scheduler.queue.get("uid-p")
        assert entry is not None
        assert entry.reason == message(fixture)
        assert len(fixture.scheduler.decisions.attempts("default/p")) == attempts, "there is no attempt"
        assert len(fixture.events.notes) == events, "nor an event"

    simulate(story, cluster, quota_profile)


def test_the_use_of_the_quota_changes() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(1)
        fixture.api.store(on_node(of_quota("small", cpu="1")))
        await fixture.until_idle(SOON)
        assert numbers(fixture) == ("4", "4")
        fixture.api.drop("pods", "default/small")
        await fixture.until_idle(SOON)
        assert numbers(fixture) == ("4", "3")

    simulate(story, cluster, quota_profile)


def test_what_comes_after_the_reason_stays() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(1)
        _, _, before = message(fixture).partition("exceedDimensions: ")
        assert "preemption" in before
        set_quota(fixture.api, 5)
        await fixture.until_idle(SOON)
        assert numbers(fixture) == ("5", "3")
        assert message(fixture).endswith(f"exceedDimensions: {before}")

    simulate(story, partial(cluster, of_quota("p", cpu="3", priority=-1)), quota_profile)


def test_numbers_that_stay_are_not_written_again() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(60)
        assert writes(fixture) == {"p": 1}

    simulate(story, cluster, quota_profile)


def test_numbers_that_change_all_the_time_are_written_once_in_some_seconds() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(1)
        for number in range(20):
            set_quota(fixture.api, 4 + number % 2)
            await fixture.until_idle(1)
        assert 2 <= writes(fixture)["p"] <= 5

    simulate(story, cluster, quota_profile)


def test_many_pods_take_turns() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(1)
        fixture.api.conditions.clear()
        # Never the same twice, so that nobody's numbers are right for long.
        for number in range(5):
            set_quota(fixture.api, 5 + number % 2)
            fixture.api.store(on_node(of_quota(f"tiny{number}", cpu="100m")))
            await fixture.until_idle(5)
        assert len(writes(fixture)) == 250
        assert writes(fixture).total() <= 5 * MOST

    waiting = [of_quota(f"p{number}", cpu=f"{3000 + number}m") for number in range(250)]
    simulate(story, partial(cluster, *waiting), quota_profile)


class Failing(ElasticQuota):
    def refusal_if_tried(self, pod: PodInfo) -> Reason | None:
        if self.view.gates:
            raise ZeroDivisionError("division by zero")
        return super().refusal_if_tried(pod)


def failing(view: ClusterView) -> Profile:
    base = quota_profile(view)
    plugin = Failing(base.plugins["ElasticQuota"].args, view)
    return Profile("koord-scheduler", {**base.plugins, plugin.name: plugin}, base.order)


def test_a_plugin_that_raises_leaves_the_condition_as_it_is() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(1)
        before = message(fixture)
        fixture.scheduler.state.view.gates = frozenset({"fails"})
        set_quota(fixture.api, 5)
        await fixture.until_idle(SOON)
        assert message(fixture) == before
        labels = {"plugin": "ElasticQuota", "method": "refusal_if_tried"}
        assert fixture.registry.get_sample_value("scheduler_plugin_errors_total", labels) == 1
        fixture.scheduler.state.view.gates = frozenset()
        await fixture.until_idle(SOON)
        assert numbers(fixture) == ("5", "3")

    simulate(story, cluster, failing)


def test_a_pod_that_is_admitted_by_now_is_left_to_its_next_attempt() -> None:
    async def story(fixture: RunningScheduler) -> None:
        await fixture.until_idle(1)
        set_quota(fixture.api, 6)
        await fixture.until_idle(SOON)
        assert fixture.api.document(PODS, "p", "default")["spec"]["nodeName"] == "n"

    simulate(story, cluster, quota_profile)
