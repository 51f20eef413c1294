"""Arguments of plugins: defaults, completion, and what is said about those that cannot be."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from koordinator.api.component_configuration import plain_document
from koordinator.base.errors import ConfigurationError
from koordinator.scheduler.configuration import default_configuration
from koordinator.scheduler.configuration.points import ARGUMENT_KINDS, KNOWN_PLUGINS, make_arguments

_QUOTA = {"cpu": "1844674407370955161", "memory": "1844674407370955161"}
_CPU_AND_MEMORY = {
    "type": "LeastAllocated",
    "resources": [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}],
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "NodeAffinity": {},
    "NodeResourcesFit": {"ignoredResources": [], "ignoredResourceGroups": [], "scoringStrategy": _CPU_AND_MEMORY},
    "NodeResourcesBalancedAllocation": {"resources": _CPU_AND_MEMORY["resources"]},
    "VolumeBinding": {"bindTimeoutSeconds": 600},
    "PodTopologySpread": {"defaultConstraints": [], "defaultingType": "System"},
    "InterPodAffinity": {"hardPodAffinityWeight": 1, "ignorePreferredTermsOfExistingPods": False},
    "DynamicResources": {"filterTimeout": "10s"},
    "DefaultPreemption": {"minCandidateNodesPercentage": 10, "minCandidateNodesAbsolute": 100},
    "LoadAwareScheduling": {
        "filterExpiredNodeMetrics": True,
        "nodeMetricExpirationSeconds": 180,
        "enableScheduleWhenNodeMetricsExpired": False,
        "resourceWeights": {"cpu": 1, "memory": 1},
        "dominantResourceWeight": 0,
        "usageThresholds": {"cpu": 65, "memory": 95},
        "prodUsageThresholds": {},
        "prodUsageIncludeSys": False,
        "scoreAccordingProdUsage": False,
        "estimator": "",
        "estimatedScalingFactors": {"cpu": 85, "memory": 70},
        "allowCustomizeEstimation": False,
        "supportedResources": [],
    },
    "NodeNUMAResource": {
        "defaultCPUBindPolicy": "FullPCPUs",
        "scoringStrategy": _CPU_AND_MEMORY,
        "numaScoringStrategy": _CPU_AND_MEMORY,
    },
    "DeviceShare": {
        "allocator": "",
        "scoringStrategy": {
            "type": "LeastAllocated",
            "resources": [
                {"name": f"koordinator.sh/{name}", "weight": 1}
                for name in ("gpu-memory-ratio", "gpu-memory", "rdma", "fpga")
            ],
        },
        "disableDeviceNUMATopologyAlignment": False,
        "gpuSharedResourceTemplatesConfig": {
            "configMapNamespace": "koordinator-system",
            "configMapName": "gpu-shared-resource-templates",
            "matchedResources": ["huawei.com/npu-core"],
        },
        "gpuShareUnsupportedModels": [],
    },
    "Reservation": {
        "enablePreemption": False,
        "minCandidateNodesPercentage": 10,
        "minCandidateNodesAbsolute": 100,
        "controllerWorkers": 1,
        "gcDurationSeconds": 86400,
        "gcIntervalSeconds": 60,
        "disableGarbageCollection": False,
        "resyncIntervalSeconds": 60,
        "ignoredResources": [],
        "ignoredResourceGroups": [],
        "reservationSelectorIndex": {"enabled": False, "keyPrefixes": [], "keys": []},
    },
    "ElasticQuota": {
        "delayEvictTime": "2m0s",
        "revokePodInterval": "1s",
        "defaultQuotaGroupMax": _QUOTA,
        "systemQuotaGroupMax": _QUOTA,
        "quotaGroupNamespace": "koordinator-system",
        "monitorAllQuotas": False,
        "enableCheckParentQuota": False,
        "enableRuntimeQuota": True,
        "enableMinQuotaScale": True,
        "disableDefaultQuotaPreemption": True,
        "enableQueueHint": False,
        "quotaSnapshotUpdateInterval": "2m0s",
        "hookPlugins": [],
    },
    "Coscheduling": {
        "defaultTimeout": "10m0s",
        "controllerWorkers": 1,
        "skipCheckScheduleCycle": False,
        "enablePreemption": False,
        "awareNetworkTopology": False,
        "defaultMatchPolicy": "once-satisfied",
        "gangPolicy": "Members",
    },
    "NodeResourcesFitPlus": {"resources": {}},
    "ScarceResourceAvoidance": {"resources": []},
    "SchedulingHint": {"maxHintNodes": 100},
}


@pytest.mark.parametrize("name", ARGUMENT_KINDS)
def test_defaults(name: str) -> None:
    written = plain_document(make_arguments(name, {}, "args"))
    assert {field: value for field, value in written.items() if field not in ("apiVersion", "kind")} == DEFAULTS[name]


def test_every_kind_belongs_to_a_plugin_and_is_always_there() -> None:
    assert set(ARGUMENT_KINDS) <= set(KNOWN_PLUGINS)
    assert set(default_configuration().profiles[0].arguments) == set(ARGUMENT_KINDS)


COMPLETED = [
    (
        "NodeResourcesFit",
        "{scoringStrategy: {resources: [{name: a.b/c, weight: 0}]}}",
        "scoringStrategy.resources.0.weight",
        1,
    ),
    (
        "NodeResourcesFit",
        "{scoringStrategy: {type: MostAllocated, resources: []}}",
        "scoringStrategy.resources.0.name",
        "cpu",
    ),
    ("NodeResourcesBalancedAllocation", "{resources: []}", "resources.1.name", "memory"),
    ("LoadAwareScheduling", "{dominantResourceWeight: 1}", "resourceWeights", {}),
    ("LoadAwareScheduling", "{usageThresholds: {cpu: 0}}", "usageThresholds", {"cpu": 0}),
    (
        "LoadAwareScheduling",
        "{aggregated: {usageAggregatedDuration: 5m}}",
        "aggregated.usageAggregatedDuration",
        "5m0s",
    ),
    ("Reservation", "{gcDurationSeconds: 0}", "gcDurationSeconds", 86400),
    (
        "Reservation",
        "{preAllocationConfig: {}}",
        "preAllocationConfig.clusterLabelKey",
        "pod.koordinator.sh/is-pre-allocatable",
    ),
    ("ElasticQuota", "{defaultQuotaGroupMax: {cpu: 2500m}}", "defaultQuotaGroupMax", {"cpu": "2500m"}),
    ("ElasticQuota", "{quotaGroupNamespace: ''}", "quotaGroupNamespace", "koordinator-system"),
    (
        "DeviceShare",
        "{gpuSharedResourceTemplatesConfig: {configMapName: a}}",
        "gpuSharedResourceTemplatesConfig.configMapNamespace",
        "",
    ),
    (
        "NodeAffinity",
        "{addedAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 3}]}}",
        "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution.0.weight",
        3,
    ),
]


@pytest.mark.parametrize(("name", "args", "path", "expected"), COMPLETED)
def test_what_is_given_is_kept_and_the_rest_completed(name: str, args: str, path: str, expected: object) -> None:
    value = plain_document(make_arguments(name, yaml.safe_load(args), "args"))
    for step in path.split("."):
        value = value[int(step) if step.isdigit() else step]
    assert value == expected


_ADDED = (
    "addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [%s]}]}}"
)
REFUSED = [
    ("NodeAffinity", "{kind: OtherArgs}", r"args.kind: 'OtherArgs' .*NodeAffinityArgs"),
    ("NodeAffinity", "{apiVersion: v1}", r"args.apiVersion: 'v1' .*kubescheduler.config.k8s.io/v1"),
    (
        "NodeAffinity",
        "{addedAffinity: {required: {}}}",
        r"args.addedAffinity.required: {} .*no such field; there are req",
    ),
    ("NodeAffinity", "{%s}" % (_ADDED % "{key: a, operator: Near}"), r"\[0\].operator: 'Near' .*In, NotIn"),
    ("NodeAffinity", "{%s}" % (_ADDED % "{key: a, operator: In}"), r"\[0\].values: \[\] .*at least one for In"),
    ("NodeAffinity", "{%s}" % (_ADDED % "{key: a, operator: Gt, values: [b]}"), r"values: .*one integer for Gt"),
    ("NodeAffinity", "{%s}" % (_ADDED % "{key: -a, operator: Exists}"), r"\[0\].key: '-a'"),
    ("PrioritySort", "{a: 1}", r"args: {'a': 1} .*PrioritySort takes no arguments"),
    ("NodeResourcesFit", "{scoringStrategy: {type: Best}}", r"scoringStrategy.type: 'Best' .*LeastAllocated"),
    ("NodeResourcesFit", "{scoringStrategy: {resources: [{name: cpu, weight: 101}]}}", r"weight: 101 .*1 to 100"),
    ("NodeResourcesFit", "{scoringStrategy: {resources: [{weight: 1}]}}", r"resources\[0\].name: None .*must be given"),
    ("NodeResourcesFit", "{scoringStrategy: {type: RequestedToCapacityRatio}}", r"shape: \[\] .*at least one"),
    ("NodeResourcesFit", "{ignoredResourceGroups: [a/b]}", r"ignoredResourceGroups\[0\]: 'a/b' .*without a slash"),
    ("NodeResourcesFit", "{ignoredResources: ['a b']}", r"ignoredResources\[0\]: 'a b'"),
    ("NodeResourcesBalancedAllocation", "{resources: [{name: cpu, weight: 2}]}", r"weight: 2 .*usable: 1"),
    ("VolumeBinding", "{bindTimeoutSeconds: -1}", r"bindTimeoutSeconds: -1 .*0 or more"),
    ("VolumeBinding", "{shape: []}", r"shape: .*StorageCapacityScoring"),
    ("DynamicResources", "{bindingTimeout: 5s}", r"bindingTimeout: .*DRADeviceBindingConditions"),
    ("DynamicResources", "{filterTimeout: -1s}", r"filterTimeout: .*0s or more"),
    (
        "DefaultPreemption",
        "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}",
        r"Percentage: 0 .*more than 0",
    ),
    ("InterPodAffinity", "{hardPodAffinityWeight: 101}", r"hardPodAffinityWeight: 101 .*0 to 100"),
    ("PodTopologySpread", "{defaultingType: Own}", r"defaultingType: 'Own' .*System, List"),
    ("PodTopologySpread", "{defaultConstraints: [{maxSkew: 1}]}", r"defaultingType: 'System' .*List"),
    (
        "PodTopologySpread",
        "{defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone}]}",
        r"whenUnsat.*''",
    ),
    ("LoadAwareScheduling", "{usageThresholds: {cpu: 101}}", r"args.usageThresholds\[cpu\]: 101 .*0 to 100"),
    ("LoadAwareScheduling", "{usageThresholds: {cpu: a}}", r"args.usageThresholds\[cpu\]: 'a' .*Expected `int`"),
    ("LoadAwareScheduling", "{prodUsageThresholds: {cpu: -1}}", r"prodUsageThresholds\[cpu\]: -1"),
    ("LoadAwareScheduling", "{nodeMetricExpirationSeconds: 0}", r"nodeMetricExpirationSeconds: 0 .*1 or more"),
    ("LoadAwareScheduling", "{resourceWeights: {gpu: 1}}", r"estimatedScalingFactors\[gpu\].*every weighted"),
    ("LoadAwareScheduling", "{aggregated: {usageAggregationType: p42}}", r"usageAggregationType: 'p42' .*p50"),
    ("LoadAwareScheduling", "{aggregated: {scoreAggregatedDuration: -5m}}", r"scoreAggregatedDuration: .*0s or more"),
    ("LoadAwareScheduling", "{thresholds: {}}", r"args.thresholds: {} .*no such field; there are .*usageThresholds"),
    ("NodeNUMAResource", "{defaultCPUBindPolicy: Half}", r"'Half' .*one of '', FullPCPUs, SpreadByPCPUs"),
    ("NodeNUMAResource", "{numaScoringStrategy: {type: Best}}", r"numaScoringStrategy.type: 'Best'"),
    (
        "NodeNUMAResource",
        "{scoringStrategy: {type: BalancedAllocation}}",
        r"scoringStrategy.type: 'BalancedAllocation'",
    ),
    ("DeviceShare", "{scoringStrategy: {resources: [{name: a, weight: 0}]}}", r"weight: 0 .*1 to 100"),
    ("DeviceShare", "{gpuShareUnsupportedModels: [{vendor: a}]}", r"Models\[0\].model: None .*must be given"),
    ("Reservation", "{minCandidateNodesPercentage: 101}", r"minCandidateNodesPercentage: 101 .*0 to 100"),
    (
        "Reservation",
        "{enablePreemption: true, minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}",
        r"Percentage: 0 .*more than 0",
    ),
    ("Reservation", "{ignoredResources: [cpu]}", r"ignoredResources\[0\]: 'cpu' .*extended resource"),
    ("Reservation", "{ignoredResourceGroups: [kubernetes.io]}", r"ignoredResourceGroups\[0\]: 'kubernetes.io'"),
    ("ElasticQuota", "{defaultQuotaGroupMax: {cpu: -1}}", r"defaultQuotaGroupMax\[cpu\]: '-1' .*0 or more"),
    ("ElasticQuota", "{delayEvictTime: soon}", r"args.delayEvictTime: 'soon' .*not a duration"),
    ("ElasticQuota", "{revokePodInterval: -1s}", r"revokePodInterval: .*0s or more"),
    ("Coscheduling", "{controllerWorkers: 0}", r"controllerWorkers: 0 .*1 or more"),
    ("Coscheduling", "{gangPolicy: Some}", r"gangPolicy: 'Some' .*Members, Whole"),
    ("Coscheduling", "{defaultTimeout: -1s}", r"defaultTimeout: .*0s or more"),
    ("NodeResourcesFitPlus", "{resources: {cpu: {type: Best, weight: 1}}}", r"resources\[cpu\].type: 'Best'"),
    ("SchedulingHint", "{maxHintNodes: 0}", r"maxHintNodes: 0 .*1 or more"),
]


@pytest.mark.parametrize(("name", "args", "message"), REFUSED)
def test_mistakes_are_named(name: str, args: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_arguments(name, yaml.safe_load(args), "args")
