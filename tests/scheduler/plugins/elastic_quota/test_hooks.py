"""Plugins of other packages that have a say in quotas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from koordinator.api.elastic_quota import ElasticQuota as ElasticQuotaObject
from koordinator.api.kinds import ELASTIC_QUOTAS
from koordinator.base.errors import ConfigurationError
from koordinator.scheduler.configuration.koordinator_arguments import ElasticQuotaArgs, HookPlugin
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.engine.framework_hooks import QuotaHookPlugin, QuotaReader
from koordinator.scheduler.engine.handle import Handle
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.elastic_quota.plugin import ElasticQuota
from koordinator.scheduler.plugins.elastic_quota.status import merge
from tests.model.quota_tree.quota_objects import wire_quota
from tests.scheduler.fakes import make_node
from tests.scheduler.plugins.elastic_quota.quota_cluster import of_quota, quota_profile
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi

_NOTE: Final = "example.com/pods"
_OPENED: Final = "Budget/Opened"


class Budget(QuotaHookPlugin):
    """No more than so many pods use the quota ``a``, however little they request; their number is noted on it."""

    name = "Budget"
    handle: Handle
    most = 1
    calls: int = 0

    def used(self) -> int:
        reader = self.handle.plugin(QuotaReader)
        assert reader is not None
        return reader.quota_amounts("a")["used"].get("cpu", 0) // 1000

    def check_pod(self, quota: str, pod: PodInfo) -> str | None:
        self.calls += 1
        return f"{quota} has {self.used()} of {self.most} pods" if quota == "a" and self.used() >= self.most else None

    def quota_patch(self, quota: ElasticQuotaObject) -> Mapping[str, Any]:
        number = str(self.used())
        if quota.metadata.name != "a" or quota.metadata.annotations.get(_NOTE) == number:
            return {}
        return {"metadata": {"annotations": {_NOTE: number}}}

    def events_to_register(self) -> frozenset[str]:
        return frozenset({_OPENED})


def profile(view: ClusterView) -> Profile:
    base = quota_profile(view)
    return Profile(base.scheduler_name, {**base.plugins, Budget.name: Budget(None, view)}, base.order)


def cluster(*quotas: str) -> SchedulerApi:
    api = SchedulerApi()
    api.store(make_node("n", cpu="16", memory="64Gi"))
    for name in quotas:
        api.store(wire_quota(name, max={"cpu": 8, "memory": "64Gi"}), ELASTIC_QUOTAS)
    return api


def hook_of(fixture: RunningScheduler) -> Budget:
    hook = fixture.scheduler.engines["koord-scheduler"].profile.plugins[Budget.name]
    assert isinstance(hook, Budget)
    return hook


def test_a_pod_that_a_hook_refuses_waits_and_says_why() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(2):
            fixture.api.store(of_quota(f"p{number}"))
        await fixture.until_idle()

    fixture = simulate(story, lambda: cluster("a"), profile)
    assert len(fixture.api.placed()) == 1
    (note,) = (note for _, reason, note in fixture.events.notes if reason == "FailedScheduling")
    assert "CheckPod failed for hook plugin Budget, err: a has 1 of 1 pods" in note


def test_pods_of_other_quotas_are_none_of_its_business() -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(3):
            fixture.api.store(of_quota(f"p{number}", "b"))
        await fixture.until_idle()

    assert len(simulate(story, lambda: cluster("a", "b"), profile).api.placed()) == 3


def test_a_hook_is_not_queried_about_a_pod_that_its_quota_has_no_capacity_for() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(of_quota("large", cpu="9"))
        await fixture.until_idle()
        assert hook_of(fixture).calls == 0

    simulate(story, lambda: cluster("a"), profile)


@pytest.mark.parametrize("opens", [True, False])
def test_an_event_of_the_hook_s_own_wakes_the_pods_that_it_lets_in(opens: bool) -> None:
    async def story(fixture: RunningScheduler) -> None:
        for number in range(3):
            fixture.api.store(of_quota(f"p{number}"))
        await fixture.until_idle(12)
        hook = hook_of(fixture)
        hook.most += opens
        hook.handle.announce(ClusterEvent(_OPENED))
        await fixture.until_idle(12)

    assert len(simulate(story, lambda: cluster("a"), profile).api.placed()) == 1 + opens


def test_what_a_hook_notes_on_a_quota_is_written_with_the_numbers() -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(of_quota("p"))
        await fixture.until_idle(3)

    api = simulate(story, lambda: cluster("a"), profile).api
    document = api.document(ELASTIC_QUOTAS, "a", "kube-system")
    assert document["metadata"]["annotations"][_NOTE] == "1"
    assert document["status"]["used"]["cpu"] == "1"
    assert json.loads(document["metadata"]["annotations"]["quota.scheduling.koordinator.sh/request"])["cpu"] == "1"


def test_of_two_patches_the_later_one_wins_where_both_say_something() -> None:
    found: dict[str, Any] = {}
    merge(found, {"metadata": {"annotations": {"a": "1", "b": "1"}}, "status": None})
    merge(found, {"metadata": {"annotations": {"b": "2"}}, "status": {"used": {}}})
    assert found == {"metadata": {"annotations": {"a": "1", "b": "2"}}, "status": {"used": {}}}


def test_the_original_s_way_to_name_hooks_is_refused_with_ours() -> None:
    args = ElasticQuotaArgs(hook_plugins=[HookPlugin(key="mine", factory_key="f")])
    with pytest.raises(ConfigurationError, match=r"hookPlugins: \['mine'\].*listed in the profile"):
        ElasticQuota(args, RunningScheduler(SchedulerApi()).scheduler.state.view)
