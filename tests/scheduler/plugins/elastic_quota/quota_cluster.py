"""An engine with ElasticQuota on a cluster in memory: pods are known to the API before they are decided about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from koordinator.api.elastic_quota import ElasticQuota as ElasticQuotaObject
from koordinator.api.kinds import ELASTIC_QUOTAS
from koordinator.api.pod import Pod
from koordinator.scheduler.configuration.koordinator_arguments import CoschedulingArgs, ElasticQuotaArgs
from koordinator.scheduler.engine.decision import Placement, Rejection
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.coscheduling.plugin import Coscheduling
from koordinator.scheduler.plugins.elastic_quota.plugin import ElasticQuota
from tests.scheduler.fakes import FirstChoice, describe, make_node, make_pod, make_profile, make_state
from tests.scheduler.ground.clusters import NOW

LABEL = "quota.scheduling.koordinator.sh"


def of_quota(name: str, quota: str = "a", cpu: str = "1", priority: int = 0, **changes: Any) -> Pod:
    """A pod of the quota; ``preemptible`` is its label."""
    labels = {f"{LABEL}/name": quota} if quota else {}
    if "preemptible" in changes:
        labels[f"{LABEL}/preemptible"] = changes.pop("preemptible")
    return make_pod(name, cpu=cpu, priority=priority, labels=labels, **changes)


def quota_profile(view: ClusterView, name: str = "koord-scheduler", *others: Plugin, **args: Any) -> Profile:
    """``others`` are plugins that the profile lists at no extension point."""
    base, plugin = make_profile(view, name=name), ElasticQuota(ElasticQuotaArgs(**args), view)
    order = replace(
        base.order,
        pre_filter=(*base.order.pre_filter, plugin.name),
        post_filter=(*base.order.post_filter, plugin.name),
    )
    return Profile(name, {**base.plugins, plugin.name: plugin, **{each.name: each for each in others}}, order)


class QuotaCluster:
    """Nodes of 16 CPUs. With ``gang_policy``, the profile has Coscheduling, too."""

    def __init__(self, nodes: int = 2, gates: frozenset[str] = frozenset(), gang_policy: str = "", **args: Any) -> None:
        self.state = make_state()
        self.view = self.state.view
        self.view.gates = gates
        gangs = (Coscheduling(CoschedulingArgs(gang_policy=gang_policy), self.view),) if gang_policy else ()
        profile = quota_profile(self.view, "koord-scheduler", *gangs, **args)
        self.state.add_event_handlers(profile.event_handlers)
        for number in range(nodes):
            self.state.set_node(make_node(f"n{number}"))
        self.engine = Engine(profile, self.state, FirstChoice())
        plugin = profile.plugins["ElasticQuota"]
        assert isinstance(plugin, ElasticQuota)
        self.plugin = plugin

    def quota(self, quota: ElasticQuotaObject) -> None:
        self.state.set_object(ELASTIC_QUOTAS, quota.metadata.key, quota)

    def bound(self, pod: Pod, node: str) -> PodInfo:
        """The API has the pod on the node."""
        info = describe(pod)
        self.state.set_pod(info, node)
        self.state.show_pod(info, node)
        return info

    def decide(self, pod: Pod) -> Placement | Rejection:
        """The API has the pod, which is tried."""
        info = describe(pod)
        self.state.show_pod(info, "")
        return self.engine.decide(info, NOW)

    def place(self, pod: Pod) -> Placement:
        """It is tried and gets its node."""
        placement = self.decide(pod)
        assert isinstance(placement, Placement), placement
        assert self.engine.assume(placement) is None
        return placement

    def reject(self, pod: Pod) -> Rejection:
        rejection = self.decide(pod)
        assert isinstance(rejection, Rejection)
        return rejection

    def used(self, quota: str) -> int:
        return self.plugin.accounts.forest.nodes[quota].total.used.get("cpu", 0)
