"""Series with which each alert fires, and with which it does not, in the notation of promtool: three hours, a sample
each minute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

Series = dict[str, str]
_SCHEDULER: Final = 'koordinator_build_info{job="s",instance="i",program="koord-scheduler"}'
_DESCHEDULER: Final = 'koordinator_build_info{job="d",instance="i",program="koord-descheduler"}'
_MANAGER: Final = 'koordinator_build_info{job="m",instance="i",program="koord-manager"}'
_STALLED: Final = (
    'koordlet_pod_psi{psi_resource_type="mem",psi_precision="avg300",psi_degree="full",pod_namespace="a",pod_name="b"}'
)
_ALWAYS: Final = "1x180"


@dataclass(frozen=True)
class Case:
    """``labels`` are those of the alerts that fire, and ``summary`` is what they say."""

    fires: Series
    quiet: Series
    summary: str
    labels: tuple[dict[str, str], ...] = field(default=({},))


CASES: Final = {
    "KoordinatorProgramAbsent": Case(
        {_MANAGER: _ALWAYS},
        {_MANAGER: _ALWAYS, _SCHEDULER: _ALWAYS},
        "Prometheus has no metrics of koord-scheduler.",
        ({"program": "koord-scheduler"},),
    ),
    "KoordManagerWithoutLeader": Case(
        {
            'koordinator_manager_is_leader{instance="a"}': "0x180",
            'koordinator_manager_is_leader{instance="b"}': "0x180",
        },
        {
            'koordinator_manager_is_leader{instance="a"}': "0x180",
            'koordinator_manager_is_leader{instance="b"}': _ALWAYS,
        },
        "No replica of koord-manager leads.",
    ),
    "KoordInformerSilent": Case(
        {'informer_seconds_since_contact{job="s",instance="i",kind="pods"}': "400+60x180"},
        {'informer_seconds_since_contact{job="s",instance="i",kind="pods"}': "200x180"},
        "s has not heard of pods for 3h 6m 40s.",
        ({"job": "s", "instance": "i", "kind": "pods"},),
    ),
    "KoordLoopFailing": Case(
        {
            'loop_errors_total{job="m",loop="nodes"}': "0+9x180",
            'loop_duration_seconds_count{job="m",loop="nodes"}': "0+10x180",
        },
        {
            'loop_errors_total{job="m",loop="nodes"}': "0+1x180",
            'loop_duration_seconds_count{job="m",loop="nodes"}': "0+10x180",
        },
        "More than half of the iterations of nodes of m fail.",
        ({"job": "m", "loop": "nodes"},),
    ),
    "KoordPluginFailing": Case(
        {'koordlet_plugin_working{node="n",plugin="p",package="x"}': "0x180"},
        {'koordlet_plugin_working{node="n",plugin="p",package="x"}': _ALWAYS},
        "The plugin p of koordlet on n has failed.",
        ({"node": "n", "plugin": "p", "package": "x"},),
    ),
    "KoordSchedulerPluginErrors": Case(
        {
            _SCHEDULER: _ALWAYS,
            'scheduler_plugin_errors_total{job="s",instance="i",plugin="p",method="filter"}': "0+1x180",
        },
        {
            _SCHEDULER: _ALWAYS,
            'scheduler_plugin_errors_total{job="s",instance="i",plugin="p",method="filter"}': "3x180",
        },
        "The plugin p of the scheduler has failed in filter.",
        ({"job": "s", "plugin": "p", "method": "filter"},),
    ),
    "KoordSLOConfigurationInError": Case(
        {'koord_manager_slo_configuration_in_error{key="colocation-config"}': _ALWAYS},
        {'koord_manager_slo_configuration_in_error{key="colocation-config"}': "0x180"},
        "The key colocation-config of the SLO configuration cannot be used.",
        ({"key": "colocation-config"},),
    ),
    "KoordletConfigurationRefused": Case(
        {'koordlet_configuration_refused{node="n"}': _ALWAYS},
        {'koordlet_configuration_refused{node="n"}': "0x180"},
        "koordlet on n refuses its ConfigMap.",
        ({"node": "n"},),
    ),
    "KoordReportsOld": Case(
        {'koord_manager_overcommit_oldest_report_timestamp_seconds{resource="r"}': "3600x180"},
        {'koord_manager_overcommit_oldest_report_timestamp_seconds{resource="r"}': "0+60x180"},
        "The oldest report that r is computed from is 2h 0m 0s old.",
        ({"resource": "r"},),
    ),
    "KoordNodesNotTrusted": Case(
        {
            'koord_manager_abnormal_nodes{reason="AgentMissing"}': "2x180",
            'koord_manager_abnormal_nodes{reason="FrozenReadings"}': "0x180",
        },
        {'koord_manager_abnormal_nodes{reason="AgentMissing"}': "0x180"},
        "2 nodes are not trusted: AgentMissing.",
        ({"reason": "AgentMissing"},),
    ),
    "KoordColocationTakenBack": Case(
        {'koord_manager_adapted_nodes{level="1"}': "3x180"},
        {'koord_manager_adapted_nodes{level="1"}': "0x180"},
        "The co-location of 3 nodes is taken back.",
    ),
    "KoordPodStalledForMemory": Case(
        {_STALLED: "25x180"},
        {
            _STALLED: "5x180",
            _STALLED.replace("mem", "cpu"): "25x180",
        },
        "a/b waits for memory 25 % of its time.",
        (
            {
                "psi_resource_type": "mem",
                "psi_precision": "avg300",
                "psi_degree": "full",
                "pod_namespace": "a",
                "pod_name": "b",
            },
        ),
    ),
    "KoordManyEvictionsByKoordlet": Case(
        {'koordlet_pod_eviction{node="n",reason="evicted"}': "0+1x180"},
        {'koordlet_pod_eviction{node="n",reason="evicted"}': "40x180"},
        "koordlet on n has evicted 30 pods in half an hour.",
        ({"node": "n"},),
    ),
    "KoordPodCgroupsMissing": Case(
        {
            'koordlet_pod_cgroups{node="n",state="missing"}': "4x180",
            'koordlet_pod_cgroups{node="n",state="found"}': "9x180",
        },
        {
            'koordlet_pod_cgroups{node="n",state="missing"}': "0x180",
            'koordlet_pod_cgroups{node="n",state="found"}': "9x180",
        },
        "koordlet on n does not find the cgroups of 4 pods.",
        ({"node": "n", "state": "missing"},),
    ),
    "KoordSamplesDropped": Case(
        {'koordlet_metric_cache_rejected_samples_total{node="n"}': "0+5x180"},
        {'koordlet_metric_cache_rejected_samples_total{node="n"}': "5x180"},
        "koordlet on n drops samples.",
        ({"node": "n"},),
    ),
    "KoordPodsUnschedulable": Case(
        {_SCHEDULER: _ALWAYS, 'scheduler_pending_pods{job="s",instance="i",queue="unschedulable"}': "7x180"},
        {'scheduler_pending_pods{job="kube-scheduler",instance="i",queue="unschedulable"}': "7x180"},
        "7 pods have no node that fits.",
        ({"job": "s"},),
    ),
    "KoordSchedulingErrors": Case(
        {_SCHEDULER: _ALWAYS, 'scheduler_schedule_attempts_total{job="s",instance="i",result="error"}': "0+1x180"},
        {
            _SCHEDULER: _ALWAYS,
            'scheduler_schedule_attempts_total{job="s",instance="i",result="unschedulable"}': "0+1x180",
        },
        "15 attempts to place a pod have failed by an error.",
        ({"job": "s"},),
    ),
    "KoordSchedulingSlow": Case(
        {
            _SCHEDULER: _ALWAYS,
            'scheduler_scheduling_attempt_duration_seconds_bucket{job="s",instance="i",le="8"}': "0+0x180",
            'scheduler_scheduling_attempt_duration_seconds_bucket{job="s",instance="i",le="16"}': "0+60x180",
            'scheduler_scheduling_attempt_duration_seconds_bucket{job="s",instance="i",le="+Inf"}': "0+60x180",
        },
        {
            _SCHEDULER: _ALWAYS,
            'scheduler_scheduling_attempt_duration_seconds_bucket{job="s",instance="i",le="1"}': "0+60x180",
            'scheduler_scheduling_attempt_duration_seconds_bucket{job="s",instance="i",le="+Inf"}': "0+60x180",
        },
        "One in a hundred attempts to place a pod takes more than 15.92s.",
        ({"job": "s"},),
    ),
    "KoordWebhookFailing": Case(
        {'controller_runtime_webhook_requests_total{webhook="/mutate-pod",code="503"}': "0+1x180"},
        {'controller_runtime_webhook_requests_total{webhook="/mutate-pod",code="200"}': "0+1x180"},
        "The webhook /mutate-pod fails.",
        ({"webhook": "/mutate-pod"},),
    ),
    "KoordWebhookSlow": Case(
        {
            'controller_runtime_webhook_latency_seconds_bucket{webhook="/mutate-pod",le="1"}': "0+0x180",
            'controller_runtime_webhook_latency_seconds_bucket{webhook="/mutate-pod",le="2"}': "0+60x180",
            'controller_runtime_webhook_latency_seconds_bucket{webhook="/mutate-pod",le="+Inf"}': "0+60x180",
        },
        {
            'controller_runtime_webhook_latency_seconds_bucket{webhook="/mutate-pod",le="1"}': "0+60x180",
            'controller_runtime_webhook_latency_seconds_bucket{webhook="/mutate-pod",le="+Inf"}': "0+60x180",
        },
        "The webhook /mutate-pod takes more than 1.99s.",
        ({"webhook": "/mutate-pod"},),
    ),
    "KoordEvictionsFail": Case(
        {
            _DESCHEDULER: _ALWAYS,
            'descheduler_pods_evicted{job="d",instance="i",strategy="LowNodeLoad",result="error"}': "0+1x180",
        },
        {
            _DESCHEDULER: _ALWAYS,
            'descheduler_pods_evicted{job="d",instance="i",strategy="LowNodeLoad",result="success"}': "0+1x180",
        },
        "60 evictions for LowNodeLoad have been refused in an hour.",
        ({"job": "d", "strategy": "LowNodeLoad"},),
    ),
    "KoordDeviceUnhealthy": Case(
        {'koord_device_daemon_devices{instance="n",vendor="nvidia",healthy="false"}': _ALWAYS},
        {'koord_device_daemon_devices{instance="n",vendor="nvidia",healthy="true"}': "8x180"},
        "1 devices of nvidia at n are not healthy.",
        ({"instance": "n", "vendor": "nvidia"},),
    ),
    "KoordAuditRecordsLost": Case(
        {'koord_manager_audit_records_total{result="lost"}': "0+1x180"},
        {'koord_manager_audit_records_total{result="kept"}': "0+1x180"},
        "koord-manager cannot keep records of the audit.",
        ({"result": "lost"},),
    ),
}
