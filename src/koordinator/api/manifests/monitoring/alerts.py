"""The alerts: when each fires, what it means and what to do; and the files that Prometheus takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

_OF_SCHEDULER: Final = 'and on (job, instance) koordinator_build_info{program="koord-scheduler"}'
_OF_DESCHEDULER: Final = 'and on (job, instance) koordinator_build_info{program="koord-descheduler"}'
"""kube-scheduler and the descheduler of Kubernetes have metrics of the same names."""
RUNBOOKS: Final = "docs/runbooks.md"


@dataclass(frozen=True, slots=True)
class Alert:
    """``pending`` is how long the expression must hold. ``summary`` is a template of Prometheus; the others are
    sentences of the runbook."""

    name: str
    expression: str
    pending: str
    severity: Literal["critical", "warning", "info"]
    summary: str
    meaning: str
    steps: Sequence[str]


ALERTS: Final = (
    Alert(
        "KoordinatorProgramAbsent",
        'absent(koordinator_build_info{program="koord-scheduler"}) or '
        'absent(koordinator_build_info{program="koord-manager"})',
        "10m",
        "critical",
        "Prometheus has no metrics of {{ $labels.program }}.",
        "The program does not run, or Prometheus does not reach it. Without koord-scheduler the pods that name it stay "
        "pending; without koord-manager nodes keep what they offer now, and webhooks are not answered.",
        (
            "See whether its pods run: `kubectl -n koordinator-system get pods`.",
            "If they do, look at the target in Prometheus: the PodMonitor and the network policy must let it in.",
        ),
    ),
    Alert(
        "KoordManagerWithoutLeader",
        "sum(koordinator_manager_is_leader) < 1",
        "5m",
        "critical",
        "No replica of koord-manager leads.",
        "The replicas run, and none of them runs the controllers: batch capacity is not recomputed.",
        (
            "Look at the Lease: `kubectl -n koordinator-system get lease koordinator-manager -o yaml`.",
            "The logs of the replicas say why they do not get it; a missing permission is named there.",
        ),
    ),
    Alert(
        "KoordInformerSilent",
        "max by (job, instance, kind) (informer_seconds_since_contact) > 300",
        "5m",
        "critical",
        "{{ $labels.job }} has not heard of {{ $labels.kind }} for {{ $value | humanizeDuration }}.",
        "The program decides on objects as they were then: it may place pods on nodes that are gone.",
        (
            "See whether the API server answers the program: the panel *Requests to the API server* has the codes.",
            "401 and 403 are credentials and roles; no codes at all are the network.",
        ),
    ),
    Alert(
        "KoordLoopFailing",
        "increase(loop_errors_total[15m]) > 2 "
        "and increase(loop_errors_total[15m]) > 0.5 * increase(loop_duration_seconds_count[15m])",
        "15m",
        "warning",
        "More than half of the iterations of {{ $labels.loop }} of {{ $labels.job }} fail.",
        "What the loop does is not done: its name says what. Other loops of the program go on.",
        ("The log of the program has the error of each iteration.",),
    ),
    Alert(
        "KoordPluginFailing",
        "koordlet_plugin_working == 0",
        "10m",
        "warning",
        "The plugin {{ $labels.plugin }} of koordlet on {{ $labels.node }} has failed.",
        "A strategy, hook or sink of another package does nothing on this node. The rest of koordlet works.",
        ("The log of koordlet on that node has the error.", "Update the package, or switch the plugin off."),
    ),
    Alert(
        "KoordSchedulerPluginErrors",
        f"sum by (job, plugin, method) (increase(scheduler_plugin_errors_total[15m]) {_OF_SCHEDULER}) > 0",
        "0m",
        "warning",
        "The plugin {{ $labels.plugin }} of the scheduler has failed in {{ $labels.method }}.",
        "Pods were scheduled without what this plugin would have said.",
        ("The log of koord-scheduler has the error with the pod.",),
    ),
    Alert(
        "KoordSLOConfigurationInError",
        "max by (key) (koord_manager_slo_configuration_in_error) > 0",
        "5m",
        "warning",
        "The key {{ $labels.key }} of the SLO configuration cannot be used.",
        "What was in force before is still in force; changes of this key have no effect.",
        (
            "An event of the ConfigMap names the field, the value and what is allowed: "
            "`kubectl -n koordinator-system describe configmap slo-controller-config`.",
        ),
    ),
    Alert(
        "KoordletConfigurationRefused",
        "koordlet_configuration_refused > 0",
        "10m",
        "warning",
        "koordlet on {{ $labels.node }} refuses its ConfigMap.",
        "An earlier one, or the command line, is in force on that node.",
        ("The log of koordlet names the field and what is allowed.",),
    ),
    Alert(
        "KoordReportsOld",
        "time() - min by (resource) (koord_manager_overcommit_oldest_report_timestamp_seconds) > 600",
        "5m",
        "warning",
        "The oldest report that {{ $labels.resource }} is computed from is {{ $value | humanizeDuration }} old.",
        "Some koordlet does not report any more. Its node offers what it offered then, until its readings are not "
        "trusted any more.",
        ("`kubectl get nodemetrics` shows which one; its koordlet's log says why.",),
    ),
    Alert(
        "KoordNodesNotTrusted",
        "sum by (reason) (koord_manager_abnormal_nodes) > 0",
        "15m",
        "warning",
        "{{ $value }} nodes are not trusted: {{ $labels.reason }}.",
        "These nodes offer nothing to batch pods until their readings make sense again.",
        ("`koord status` names the nodes, `koord explain node NAME` what was read there.",),
    ),
    Alert(
        "KoordColocationTakenBack",
        "sum(koord_manager_adapted_nodes) > 0",
        "1h",
        "info",
        "The co-location of {{ $value }} nodes is taken back.",
        "Online pods there have suffered for long. They are protected; batch pods get less.",
        (
            "`koord explain interference NODE` names victims and suspects.",
            "Give the victims larger requests, or the suspects another node.",
        ),
    ),
    Alert(
        "KoordPodStalledForMemory",
        'koordlet_pod_psi{psi_resource_type="mem",psi_precision="avg300",psi_degree="full"} > 10',
        "10m",
        "warning",
        "{{ $labels.pod_namespace }}/{{ $labels.pod_name }} waits for memory {{ $value }} % of its time.",
        "All tasks of the pod stand still that long: its limit is too low, or its node is short of memory.",
        ("`koord top nodes` says whether the node is full; if not, raise the limit of the pod.",),
    ),
    Alert(
        "KoordManyEvictionsByKoordlet",
        "sum by (node) (increase(koordlet_pod_eviction[30m])) > 10",
        "0m",
        "warning",
        "koordlet on {{ $labels.node }} has evicted {{ $value | humanize }} pods in half an hour.",
        "The node lends more than it can. Batch pods lose their work again and again.",
        (
            "`koord explain node NAME` has the terms of its batch capacity.",
            "Lower `cpuReclaimThresholdPercent` or `memoryReclaimThresholdPercent` for such nodes.",
        ),
    ),
    Alert(
        "KoordPodCgroupsMissing",
        'koordlet_pod_cgroups{state="missing"} > 0',
        "15m",
        "warning",
        "koordlet on {{ $labels.node }} does not find the cgroups of {{ $value }} pods.",
        "No setting of these pods is enforced, and they are not measured.",
        ("`koord doctor` on the node says where the kubelet has them; the cgroup driver is the usual cause.",),
    ),
    Alert(
        "KoordSamplesDropped",
        "increase(koordlet_metric_cache_rejected_samples_total[15m]) > 0",
        "0m",
        "warning",
        "koordlet on {{ $labels.node }} drops samples.",
        "The node has more containers than the cache has room for; averages and forecasts miss some.",
        ("Raise the limit of memory of koordlet and the size of its metric cache.",),
    ),
    Alert(
        "KoordPodsUnschedulable",
        f'sum by (job) (scheduler_pending_pods{{queue="unschedulable"}} {_OF_SCHEDULER}) > 0',
        "1h",
        "info",
        "{{ $value }} pods have no node that fits.",
        "Pods of this scheduler wait, for an hour at least some of them.",
        ("`koord explain pod NAME` says for each what rejects it, and what would help.",),
    ),
    Alert(
        "KoordSchedulingErrors",
        f'sum by (job) (increase(scheduler_schedule_attempts_total{{result="error"}}[15m]) {_OF_SCHEDULER}) > 5',
        "0m",
        "warning",
        "{{ $value | humanize }} attempts to place a pod have failed by an error.",
        "These pods were not rejected: something failed, such as a request to the API server.",
        ("The log of koord-scheduler has the errors.",),
    ),
    Alert(
        "KoordSchedulingSlow",
        "histogram_quantile(0.99, sum by (job, le) "
        f"(rate(scheduler_scheduling_attempt_duration_seconds_bucket[10m]) {_OF_SCHEDULER})) > 5",
        "15m",
        "warning",
        "One in a hundred attempts to place a pod takes more than {{ $value | humanizeDuration }}.",
        "Pods wait for the scheduler, not for room.",
        (
            "The panels *Time by extension point* and *The slowest plugins* say where the time goes.",
            "A slow bind is a slow API server.",
        ),
    ),
    Alert(
        "KoordWebhookFailing",
        'sum by (webhook) (rate(controller_runtime_webhook_requests_total{code=~"429|5.."}[10m])) > 0',
        "10m",
        "critical",
        "The webhook {{ $labels.webhook }} fails.",
        "With `failurePolicy: Ignore` pods get in without what the webhook would have added; with `Fail` they do not.",
        ("429 and 503 are overload: add replicas. The log of koord-manager has the errors of the others.",),
    ),
    Alert(
        "KoordWebhookSlow",
        "histogram_quantile(0.99, sum by (webhook, le) "
        "(rate(controller_runtime_webhook_latency_seconds_bucket[10m]))) > 1",
        "15m",
        "warning",
        "The webhook {{ $labels.webhook }} takes more than {{ $value | humanizeDuration }}.",
        "Every pod that is created waits that long; after ten seconds the API server gives up.",
        ("koord-manager needs more CPU, or more replicas; it must have no limit of CPU.",),
    ),
    Alert(
        "KoordEvictionsFail",
        f'sum by (job, strategy) (increase(descheduler_pods_evicted{{result="error"}}[1h]) {_OF_DESCHEDULER}) > 5',
        "0m",
        "info",
        "{{ $value | humanize }} evictions for {{ $labels.strategy }} have been refused in an hour.",
        "Pods should be moved and are not, so that hot nodes stay hot.",
        ("`koord explain rebalance` says what refuses them; often a disruption budget allows none.",),
    ),
    Alert(
        "KoordDeviceUnhealthy",
        'sum by (instance, vendor) (koord_device_daemon_devices{healthy="false"}) > 0',
        "10m",
        "warning",
        "{{ $value }} devices of {{ $labels.vendor }} at {{ $labels.instance }} are not healthy.",
        "No pod gets them any more; those that have them may have failed.",
        ("The log of koord-device-daemon on that node has what the vendor's tool said.",),
    ),
    Alert(
        "KoordAuditRecordsLost",
        'increase(koord_manager_audit_records_total{result="lost"}[15m]) > 0',
        "0m",
        "warning",
        "koord-manager cannot keep records of the audit.",
        "What the programs have modified since is not in `koord audit`. The programs go on.",
        ("The volume of the audit is full or not writable: see the log of koord-manager.",),
    ),
)


def rule_groups() -> dict[str, Any]:
    """A file of rules; also the spec of a PrometheusRule."""
    return {"groups": [{"name": "koordinator", "rules": [_rule(alert) for alert in ALERTS]}]}


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.pending,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.meaning,
            "runbook": f"{RUNBOOKS}#{alert.name.lower()}",
        },
    }
