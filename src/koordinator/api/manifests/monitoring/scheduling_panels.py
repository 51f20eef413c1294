"""The dashboard of scheduling.

It has every panel of that of the Go original for which there is a metric here; docs/dashboards.md says for which there
is none. ``$job`` has the programs of this project alone: kube-scheduler has metrics of the same names.
"""

from __future__ import annotations

from typing import Final

from koordinator.api.manifests.monitoring.dashboards import Dashboard, Panel, mean, one, quantiles

_JOB: Final = '{job=~"$job"}'
_RATE: Final = "[$__rate_interval]"
_ATTEMPTS: Final = f"rate(scheduler_schedule_attempts_total{_JOB}{_RATE})"
_QUOTA: Final = 'job=~"$job",name=~"$quota"'
_INCOMING: Final = f'rate(scheduler_queue_incoming_pods_total{{job=~"$job",queue="active"}}{_RATE})'
_DONE: Final = f'{{job=~"$job",result="scheduled"}}{_RATE}'
_REST: Final = "rest_client_requests_total"

SCHEDULING: Final = Dashboard(
    "scheduling",
    "Koordinator: scheduling",
    "How fast pods are placed, which are not, and why.",
    (
        Panel(
            "Queue growth",
            "Above 0 for long: more pods come than are tried.",
            "ops",
            one(f"sum({_INCOMING}) - sum({_ATTEMPTS})"),
            "stat",
        ),
        Panel(
            "Pods about to be tried",
            "Near 0 is good: the scheduler keeps up.",
            "short",
            one('sum(scheduler_pending_pods{job=~"$job",queue="active"})'),
            "stat",
        ),
        Panel(
            "Mean time of a successful attempt",
            "Milliseconds are good.",
            "s",
            one(
                f"sum(rate(scheduler_scheduling_attempt_duration_seconds_sum{_DONE}))"
                f" / sum(rate(scheduler_scheduling_attempt_duration_seconds_count{_DONE}))"
            ),
            "stat",
        ),
        Panel(
            "Attempts that took too long",
            "0 is good. More: the log of koord-scheduler names the pods and plugins.",
            "short",
            one(f"sum(increase(scheduler_scheduling_timeout{_JOB}{_RATE})) or vector(0)"),
            "stat",
        ),
        Panel(
            "Pods that enter the queue",
            "The load of the scheduler.",
            "ops",
            one(f"sum({_INCOMING})"),
            "stat",
        ),
        Panel("Attempts", "Its work.", "ops", one(f"sum({_ATTEMPTS})"), "stat"),
        Panel(
            "CPU of the scheduler",
            "At 1 core it is the limit of what can be placed.",
            "suffix: cores",
            one(f"sum(rate(process_cpu_seconds_total{_JOB}{_RATE}))"),
            "stat",
        ),
        Panel(
            "Memory of the scheduler",
            "It grows with nodes and pods, and stays level otherwise.",
            "bytes",
            one(f"sum(process_resident_memory_bytes{_JOB})"),
            "stat",
        ),
        Panel(
            "Pending pods by queue",
            "unschedulable: no node has room, koord explain pod says why. backoff: just tried. gated: wait for "
            "something else.",
            "short",
            one(f"sum by (queue) (scheduler_pending_pods{_JOB})", "{{queue}}"),
        ),
        Panel(
            "Unschedulable pods by plugin",
            "The plugin that rejects most is where room is missing.",
            "short",
            one(f"sum by (plugin) (scheduler_unschedulable_pods{_JOB})", "{{plugin}}"),
        ),
        Panel(
            "What brings pods into the active queue",
            "Which events make the scheduler try again.",
            "ops",
            one(
                f"sum by (event) ({_INCOMING})",
                "{{event}}",
            ),
        ),
        Panel(
            "What brings pods into the backoff queue",
            "An event that brings many, all in vain, costs time.",
            "ops",
            one(
                'sum by (event) (rate(scheduler_queue_incoming_pods_total{job=~"$job",queue="backoff",event!="PodAdd"}'
                f"{_RATE}))",
                "{{event}}",
            ),
        ),
        Panel(
            "Results of attempts",
            "The share of attempts. error is never normal: see the log.",
            "percentunit",
            one(f"sum by (result) ({_ATTEMPTS}) / on () group_left () sum({_ATTEMPTS})", "{{result}}"),
        ),
        Panel(
            "Attempts by result",
            "The same, as a rate.",
            "ops",
            one(f"sum by (result) ({_ATTEMPTS})", "{{result}}"),
        ),
        Panel(
            "Preemption attempts",
            "How often pods of lower priority might have to go for one that does not fit.",
            "ops",
            one(f"sum(rate(scheduler_preemption_attempts_total{_JOB}{_RATE}))"),
        ),
        Panel(
            "Preemption victims",
            "How many pods went for one.",
            "short",
            quantiles("scheduler_preemption_victims", _JOB),
            needs="a pod that preempts others",
        ),
        Panel(
            "Time of an attempt",
            "With the binding.",
            "s",
            quantiles("scheduler_scheduling_attempt_duration_seconds", _JOB),
        ),
        Panel(
            "Time until a pod is placed",
            "With all its attempts and pauses: what users wait.",
            "s",
            quantiles("scheduler_pod_scheduling_sli_duration_seconds", _JOB),
        ),
        Panel(
            "Attempts until a pod is placed",
            "1 is good.",
            "short",
            quantiles("scheduler_pod_scheduling_attempts", _JOB),
        ),
        Panel(
            "Time of the algorithm",
            "Without the binding: it grows with nodes, and with kinds of pods.",
            "s",
            quantiles("scheduler_scheduling_algorithm_duration_seconds", _JOB),
        ),
        Panel(
            "Runs of the algorithm",
            "One for each attempt.",
            "ops",
            one(f"sum(rate(scheduler_scheduling_algorithm_duration_seconds_count{_JOB}{_RATE}))"),
        ),
        Panel(
            "Time by extension point",
            "The slowest point is where to look first.",
            "s",
            quantiles("scheduler_framework_extension_point_duration_seconds", _JOB, "extension_point", (0.99,)),
        ),
        Panel(
            "Mean time by extension point",
            "As above, less what happens rarely.",
            "s",
            mean("scheduler_framework_extension_point_duration_seconds", _JOB, "extension_point"),
        ),
        Panel(
            "The slowest plugins",
            "The ten slowest, at their point.",
            "s",
            one(
                "topk(10, histogram_quantile(0.99, sum by (le, plugin, extension_point) "
                f"(rate(scheduler_plugin_execution_duration_seconds_bucket{_JOB}{_RATE}))))",
                "{{plugin}} {{extension_point}}",
            ),
        ),
        Panel(
            "Nodes evaluated",
            "All nodes of the cluster: none are left out for speed.",
            "short",
            quantiles("scheduler_pod_scheduling_evaluated_nodes", _JOB, of=(0.5, 0.99)),
        ),
        Panel(
            "Nodes that fit",
            "Few: pods ask for what hardly any node has.",
            "short",
            quantiles("scheduler_pod_scheduling_feasible_nodes", _JOB, of=(0.5, 0.99)),
        ),
        Panel(
            "Time at permit",
            "How long members of gangs wait for the others.",
            "s",
            quantiles("scheduler_permit_wait_duration_seconds", _JOB, of=(0.5, 0.99)),
            needs="a gang within the time that the dashboard shows",
        ),
        Panel(
            "Gang groups that wait",
            "Their members hold room on nodes until all have some.",
            "short",
            one(f"sum(scheduler_waiting_gang_group_number{_JOB})"),
        ),
        Panel(
            "Failed plugins",
            "0 is good. Scheduling went on without the plugin's result.",
            "short",
            one(
                f"sum by (plugin, method) (increase(scheduler_plugin_errors_total{_JOB}[1h]))", "{{plugin}} {{method}}"
            ),
            needs="a plugin that fails",
        ),
        Panel(
            "Pods kept off nodes",
            "By the plugin that rejected the node first; LoadAwareScheduling is what keeps pods off hot nodes.",
            "ops",
            one(f"sum by (plugin) (rate(scheduler_pods_kept_off_nodes_total{_JOB}{_RATE}))", "{{plugin}}"),
        ),
        Panel(
            "Quotas: what they may have",
            "min, max and, between them, the runtime that the tree gives now. CPU is in milli-CPU, memory in bytes.",
            "short",
            one(
                f'scheduler_elastic_quota_status{{{_QUOTA},field=~"min|max|runtime"}}',
                "{{name}} {{resource}} {{field}}",
            ),
        ),
        Panel(
            "Quotas: what is asked for and used",
            "A request above the runtime waits. used above min is borrowed, and may be taken back.",
            "short",
            one(f'scheduler_elastic_quota_status{{{_QUOTA},field=~"request|used"}}', "{{name}} {{resource}} {{field}}"),
        ),
        Panel(
            "Reservations by phase",
            "Many in Failed: what they ask for is nowhere.",
            "short",
            one(f"sum by (phase) (scheduler_reservation_status_phase{_JOB})", "{{phase}}"),
        ),
        Panel(
            "Use of Reservations",
            "A Reservation that stays unused keeps room from others.",
            "percentunit",
            one('avg by (resource) (scheduler_reservation_resource{job=~"$job",type="utilization"})', "{{resource}}"),
        ),
        Panel(
            "Successful requests",
            "By method. 409 and 404 count as failures, and some are normal.",
            "percentunit",
            one(
                f'sum by (method) (rate({_REST}{{job=~"$job",code=~"2.."}}{_RATE})) / '
                f"sum by (method) (rate({_REST}{_JOB}{_RATE}))",
                "{{method}}",
            ),
        ),
        Panel(
            "Time of requests to the API server",
            "A slow API server makes bindings slow.",
            "s",
            quantiles("rest_client_request_duration_seconds", _JOB, "verb", (0.5, 0.99)),
        ),
        Panel(
            "Requests to the API server",
            "By code and method.",
            "ops",
            one(f"sum by (code, method, host) (rate({_REST}{_JOB}{_RATE}))", "{{method}} {{code}} {{host}}"),
        ),
    ),
    {
        "job": 'label_values(koordinator_build_info{program="koord-scheduler"}, job)',
        "quota": "label_values(scheduler_elastic_quota_status, name)",
    },
    {},
)
