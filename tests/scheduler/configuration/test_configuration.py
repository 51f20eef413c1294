"""Configurations that must load, what they expand to, and what is said about those that must not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.base.errors import ConfigurationError
from koordinator.scheduler.configuration import (
    default_configuration,
    load_configuration,
    not_built,
    parse_configuration,
)
from koordinator.scheduler.configuration.document import PluginEntry, Plugins, PluginSet
from koordinator.scheduler.configuration.expansion import expand
from koordinator.scheduler.configuration.points import DEFAULT_PLUGINS, KNOWN_PLUGINS
from koordinator.scheduler.plugins.table import BUILT_IN

HERE = Path(__file__).parent
ARTICLE = HERE.parents[1] / "e2e/article/load-aware-scheduling.yaml"
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
UPSTREAM_FILTERS = (
    *("NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"),
    *("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone", "PodTopologySpread"),
    *("InterPodAffinity", "DynamicResources"),
)


def test_without_a_file_the_upstream_defaults_apply() -> None:
    (profile,) = default_configuration().profiles
    assert profile.scheduler_name == "default-scheduler"
    assert profile.order.filter == UPSTREAM_FILTERS
    assert dict(profile.order.score) == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "VolumeBinding": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }
    assert "DefaultPreBind" not in profile.order.pre_bind


def test_the_charts_profile_loads_and_expands_in_the_documented_order() -> None:
    (profile,) = load_configuration(HERE / "chart_profile.yaml").profiles
    order = profile.order
    assert order.queue_sort == ("PrioritySort",)
    assert order.filter == (*UPSTREAM_FILTERS, "Reservation", "LoadAwareScheduling", "NodeNUMAResource", "DeviceShare")
    assert order.post_filter == ("Reservation", "Coscheduling", "ElasticQuota")
    assert order.pre_bind[-5:] == ("NodeNUMAResource", "DeviceShare", "Reservation", "Coscheduling", "DefaultPreBind")
    assert dict(order.score)["Reservation"] == 5000
    assert profile.arguments["LoadAwareScheduling"].filter_expired_node_metrics is False


def test_the_charts_profile_names_what_is_not_built() -> None:
    missing = not_built(load_configuration(HERE / "chart_profile.yaml"), BUILT_IN)
    assert {"Coscheduling", "Reservation", "ElasticQuota", "VolumeBinding"} <= set(missing)
    assert not {"LoadAwareScheduling", "NodeResourcesFit", "DefaultPreBind", "DefaultBinder"} & set(missing)


def test_the_articles_config_map_loads_word_for_word() -> None:
    configuration = load_configuration(ARTICLE)
    args = configuration.profiles[0].arguments["LoadAwareScheduling"]
    assert args.prod_usage_thresholds == {"cpu": 55, "memory": 65}
    assert args.aggregated.usage_aggregation_type == "p99"
    assert configuration.warnings[0].endswith("v1beta2 is read as kubescheduler.config.k8s.io/v1")


def test_load_aware_defaults() -> None:
    args = default_configuration().profiles[0].arguments["LoadAwareScheduling"]
    assert (args.filter_expired_node_metrics, args.node_metric_expiration_seconds) == (True, 180)
    assert args.usage_thresholds == {"cpu": 65, "memory": 95}
    assert args.estimated_scaling_factors == {"cpu": 85, "memory": 70}
    assert args.resource_weights == {"cpu": 1, "memory": 1}


def test_a_partial_set_of_factors_is_completed() -> None:
    text = HEAD + _with_args("LoadAwareScheduling", "{estimatedScalingFactors: {cpu: 50}}")
    args = parse_configuration(text, "file").profiles[0].arguments["LoadAwareScheduling"]
    assert args.estimated_scaling_factors == {"cpu": 50, "memory": 70}


def test_default_pre_bind_can_be_disabled() -> None:
    text = HEAD + "profiles: [{plugins: {preBind: {disabled: [{name: DefaultPreBind}]}}}]"
    assert "DefaultPreBind" not in parse_configuration(text, "file").profiles[0].order.pre_bind


def test_a_point_may_reorder_and_reweigh_what_multi_point_enables() -> None:
    text = HEAD + (
        "profiles: [{plugins: {score: {enabled: [{name: NodeAffinity, weight: 7}, {name: TaintToleration}]}}}]"
    )
    score = parse_configuration(text, "file").profiles[0].order.score
    assert score[:3] == (("NodeAffinity", 7), ("TaintToleration", 3), ("NodeResourcesFit", 1))


def _with_args(name: str, args: str) -> str:
    return f"profiles: [{{pluginConfig: [{{name: {name}, args: {args}}}]}}]"


REFUSED = {
    "apiVersion: v1\nkind: KubeSchedulerConfiguration": r"file: apiVersion: 'v1' is not usable",
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: Pod": r"file: kind: 'Pod' is not usable: KubeScheduler",
    "a: 1\na: 2": r"line 2: 'a' is not usable: a key may stand only once",
    "- a": r"1 documents.*one KubeSchedulerConfiguration",
    "{": r"YAML",
    HEAD + "profilez: []": r"file: profilez: 'profilez' is not usable: no such field",
    HEAD + "profiles: [{plugins: {filters: {}}}]": r"file: profiles\[0\].plugins.filters: .*no such field",
    HEAD + "parallelism: many": r"file: parallelism: .*Expected `int`, got `str`",
    HEAD + "parallelism: 0": r"parallelism: 0 is not usable: more than 0",
    HEAD + "podMaxBackoffSeconds: 0": r"podMaxBackoffSeconds: 0 is not usable: at least podInitialBackoffSeconds \(1\)",
    HEAD + "extenders: [{urlPrefix: http://a}]": r"extenders: .*not supported",
    HEAD + "leaderElection: {resourceLock: endpoints}": r"leaderElection.resourceLock: 'endpoints'.*leases",
    HEAD + "leaderElection: {leaseDuration: 5s}": r"leaseDuration: .*more than leaderElection.renewDeadline",
    HEAD + "leaderElection: {leaseDuration: soon}": r"file: leaderElection.leaseDuration.*'soon' is not a duration",
    HEAD
    + "profiles: [{plugins: {filter: {enabled: [{name: NodeNam}]}}}]": r"filter.enabled\[0\].name: 'NodeNam' .*no such",
    HEAD
    + "profiles: [{plugins: {score: {enabled: [{name: NodeName}]}}}]": r"'NodeName' .*not extend score, but filter",
    HEAD + "profiles: [{}, {}]": r"profiles\[1\].schedulerName: 'default-scheduler' .*no other profile",
    HEAD + "profiles: [{plugins: {queueSort: {disabled: [{name: '*'}]}}}]": r"queueSort: .*exactly one plugin",
    HEAD + "profiles: [{plugins: {bind: {disabled: [{name: '*'}]}}}]": r"bind: .*at least one plugin must bind",
    HEAD + _with_args("Nobody", "{}"): r"pluginConfig\[0\].name: 'Nobody'",
    HEAD + _with_args("NodeAffinity", "{kind: OtherArgs}"): r"args.kind: 'OtherArgs' .*NodeAffinityArgs",
    HEAD
    + _with_args(
        "LoadAwareScheduling", "{usageThresholds: {cpu: 101}}"
    ): r"args.usageThresholds\[cpu\]: 101 .*0 to 100",
    HEAD + _with_args("LoadAwareScheduling", "{prodUsageThresholds: {cpu: -1}}"): r"prodUsageThresholds\[cpu\]: -1",
    HEAD
    + _with_args(
        "LoadAwareScheduling", "{nodeMetricExpirationSeconds: 0}"
    ): r"nodeMetricExpirationSeconds: 0 .*more than 0",
    HEAD
    + _with_args(
        "LoadAwareScheduling", "{resourceWeights: {gpu: 1}}"
    ): r"estimatedScalingFactors\[gpu\].*every weighted",
    HEAD
    + _with_args(
        "LoadAwareScheduling", "{aggregated: {usageAggregationType: p42}}"
    ): r"usageAggregationType: 'p42' .*p50",
    HEAD + _with_args("LoadAwareScheduling", "{thresholds: {}}"): r"args: thresholds: .*no such field",
    HEAD
    + _with_args(
        "NodeResourcesFit", "{scoringStrategy: {type: Best}}"
    ): r"scoringStrategy.type: 'Best' .*LeastAllocated",
    HEAD
    + _with_args(
        "NodeResourcesFit", "{scoringStrategy: {resources: [{name: cpu, weight: 0}]}}"
    ): r"weight: 0 .*1 to 100",
    HEAD
    + _with_args(
        "NodeResourcesFit", "{scoringStrategy: {type: RequestedToCapacityRatio}}"
    ): r"shape: \[\] .*at least one",
    HEAD
    + _with_args("NodeResourcesBalancedAllocation", "{resources: [{name: cpu, weight: 2}]}"): r"weight: 2 .*usable: 1",
}


@pytest.mark.parametrize("text", REFUSED)
def test_mistakes_are_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match=REFUSED[text]):
        parse_configuration(text, "file")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"--config: '/nowhere/a.yaml'"):
        load_configuration(Path("/nowhere/a.yaml"))


FILTERS = sorted(name for name, points in KNOWN_PLUGINS.items() if "filter" in points)


@given(enabled=st.lists(st.sampled_from(FILTERS), unique=True), disabled=st.sets(st.sampled_from([*FILTERS, "*"])))
def test_expansion_keeps_its_promises(enabled: list[str], disabled: set[str]) -> None:
    own = PluginSet(
        enabled=[PluginEntry(name=name) for name in enabled], disabled=[PluginEntry(name=name) for name in disabled]
    )
    order = expand(Plugins(filter=own), "profiles[0]").filter
    default = [name for name, _ in DEFAULT_PLUGINS if "filter" in KNOWN_PLUGINS[name]]
    assert len(set(order)) == len(order)
    assert set(enabled) <= set(order)
    assert [name for name in order if name in enabled and name in default and name not in disabled] == [
        name for name in enabled if name in default and name not in disabled
    ]
    if "*" in disabled:
        assert list(order) == enabled
    else:
        assert set(order) == set(enabled) | {name for name in default if name not in disabled}
