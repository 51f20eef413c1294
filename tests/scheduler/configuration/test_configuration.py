"""Configurations that must load, what they expand to, and what is said about those that must not."""

from __future__ import annotations

from pathlib import Path

from koordinator.scheduler.configuration import (
    default_configuration,
    load_configuration,
    not_built,
    parse_configuration,
)
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


def test_every_plugin_of_the_charts_profile_is_built() -> None:
    assert not_built(load_configuration(HERE / "chart_profile.yaml"), BUILT_IN) == ()


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
    text = HEAD + (
        "profiles: [{pluginConfig: [{name: LoadAwareScheduling, args: {estimatedScalingFactors: {cpu: 50}}}]}]"
    )
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
    assert score[:3] == (("NodeAffinity", 7), ("TaintToleration", 1), ("NodeResourcesFit", 1))


def test_the_kustomize_sample_loads_unchanged() -> None:
    (profile,) = load_configuration(HERE / "kustomize_sample.yaml").profiles
    assert profile.scheduler_name == "koord-scheduler"
    assert profile.arguments["LoadAwareScheduling"].usage_thresholds == {"cpu": 0, "memory": 0}
    assert profile.arguments["ElasticQuota"].quota_group_namespace == "koordinator-system"


def test_percentage_of_nodes_to_score_is_read_and_warned_about() -> None:
    (warning,) = parse_configuration(HEAD + "percentageOfNodesToScore: 30", "file").warnings
    assert warning.startswith("file: percentageOfNodesToScore has no effect")


def test_bind_addresses_of_v1beta2_are_left_out() -> None:
    text = HEAD.replace("/v1", "/v1beta2") + "healthzBindAddress: 0.0.0.0:10251"
    assert parse_configuration(text, "file").document.api_version == "kubescheduler.config.k8s.io/v1"


def test_zeroes_and_empty_texts_are_defaults() -> None:
    text = HEAD + "clientConnection: {qps: 0, burst: 0}\nleaderElection: {leaseDuration: 0s, resourceName: ''}"
    configuration = parse_configuration(text, "file")
    assert (configuration.document.client_connection.qps, configuration.document.client_connection.burst) == (50, 100)
    assert configuration.document.leader_election.lease_duration.total_seconds() == 15
    assert configuration.document.leader_election.resource_name == "kube-scheduler"


def test_disabling_a_plugin_that_does_not_exist_is_a_warning() -> None:
    text = HEAD + "profiles: [{plugins: {score: {disabled: [{name: NodePreferAvoidPods}]}}}]"
    (warning,) = parse_configuration(text, "file").warnings
    assert warning.startswith("file: profiles[0].plugins.score.disabled[0].name: there is no plugin")


def test_allocations_that_would_not_be_written_are_warned_about() -> None:
    text = HEAD + (
        "profiles: [{plugins: {reserve: {enabled: [{name: DeviceShare}]}, "
        "preBind: {disabled: [{name: DefaultPreBind}]}}}]"
    )
    (warning,) = parse_configuration(text, "file").warnings
    assert "without DefaultPreBind nothing that DeviceShare decide" in warning
