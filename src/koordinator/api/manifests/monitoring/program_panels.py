"""The dashboards of descheduling, with every panel of that of the Go original, and of what the programs cost."""

from __future__ import annotations

from typing import Final

from koordinator.api.manifests.monitoring.dashboards import Dashboard, Panel, Query, one, quantiles

_JOB: Final = '{job=~"$job"}'
_RATE: Final = "[$__rate_interval]"
_PROGRAM: Final = "* on (instance, job) group_left (program) koordinator_build_info"
_EVICTED: Final = f"descheduler_pods_evicted{_JOB}"
_SUCCESS: Final = 'descheduler_pods_evicted{job=~"$job",result="success"}'
_ERROR: Final = 'descheduler_pods_evicted{job=~"$job",result="error"}'
_NO_EVICTION: Final = "an eviction that is refused"
_KOORDLET: Final = "koordlet on a real node"

DESCHEDULING: Final = Dashboard(
    "descheduling",
    "Koordinator: descheduling",
    "Which pods are moved, by which strategy, and what is refused.",
    (
        Panel("Evictions", "All since the program began.", "short", one(f"sum({_EVICTED})"), "stat"),
        Panel("Successful evictions", "Of these.", "short", one(f"sum({_SUCCESS})"), "stat"),
        Panel(
            "Failed evictions",
            "0 is good: others were refused, by a disruption budget for example.",
            "short",
            one(f"sum({_ERROR}) or vector(0)"),
            "stat",
        ),
        Panel(
            "Evictions now",
            "A rate that stays high moves the same pods again and again.",
            "ops",
            one(f"sum(rate({_EVICTED}{_RATE}))"),
            "stat",
        ),
        *(
            Panel(
                f"Evictions by {label}",
                conclusion,
                "ops",
                one(f"topk(10, sum by ({label}) (rate({_EVICTED}{_RATE})))", f"{{{{{label}}}}}"),
            )
            for label, conclusion in {
                "result": "Everything but success is a pod that stayed.",
                "strategy": "The plugin that asks for most is the one to look at.",
                "node": "The ten with the most: a node that comes again and again stays hot for another reason.",
                "namespace": "The ten with the most: one alone needs larger requests, or a budget.",
            }.items()
        ),
        Panel(
            "Successful evictions by strategy",
            "Since the program began.",
            "short",
            one(f"sum by (strategy) ({_SUCCESS})", "{{strategy}}"),
        ),
        Panel(
            "Failed evictions by strategy",
            "Since the program began.",
            "short",
            one(f"sum by (strategy) ({_ERROR})", "{{strategy}}"),
            needs=_NO_EVICTION,
        ),
        *(
            Panel(
                f"Refused: too many of one {label}",
                f"Evictions that wait because the {label} has had as many as the configuration allows.",
                "ops",
                one(
                    f'sum by ({label}) (rate(descheduler_pods_evicted{{job=~"$job",result="maximum number of pods per '
                    f'{label} reached"}}{_RATE}))',
                    f"{{{{{label}}}}}",
                ),
                needs=_NO_EVICTION,
            )
            for label in ("node", "namespace")
        ),
        Panel(
            "Evictions in this time",
            "By strategy, node, namespace and result.",
            "short",
            one(f"sum by (strategy, node, namespace, result) (increase({_EVICTED}[$__range]))"),
            "table",
        ),
        Panel(
            "Reconciled objects",
            "Migration jobs and the like; errors are tried again.",
            "ops",
            one(
                f"sum by (controller, result) (rate(koordinator_descheduler_reconcile_total{_JOB}{_RATE}))",
                "{{controller}} {{result}}",
            ),
        ),
    ),
    {"job": 'label_values(koordinator_build_info{program="koord-descheduler"}, job)'},
    {},
)

COST: Final = Dashboard(
    "cost",
    "Koordinator: what it costs",
    "The CPU, memory and requests of the programs themselves, and whether their loops work.",
    (
        Panel(
            "CPU by program",
            "koordlet's is that of all nodes together.",
            "suffix: cores",
            one(f"sum by (program) (rate(process_cpu_seconds_total{_RATE}) {_PROGRAM})", "{{program}}"),
        ),
        Panel(
            "Memory by program",
            "It grows with the cluster. Growth without that is a leak.",
            "bytes",
            one(f"sum by (program) (process_resident_memory_bytes {_PROGRAM})", "{{program}}"),
        ),
        Panel(
            "CPU of the dearest koordlets",
            "A koordlet far above the others has a node with many containers, or a fault.",
            "suffix: cores",
            one(
                f"topk(10, sum by (instance) (rate(process_cpu_seconds_total{_RATE}) * on (instance, job) "
                'koordinator_build_info{program="koordlet"}))',
                "{{instance}}",
            ),
            needs=_KOORDLET,
        ),
        Panel(
            "Time of a round of koordlet",
            "How long reading all files of a node takes.",
            "s",
            one("topk(10, koordlet_scan_duration_seconds)", "{{node}}"),
            needs=_KOORDLET,
        ),
        Panel(
            "Memory of koordlet's samples",
            "It is bounded; at the bound samples are dropped.",
            "bytes",
            one("topk(10, koordlet_metric_cache_bytes)", "{{node}}"),
            needs=_KOORDLET,
        ),
        Panel(
            "Files that koordlet reads",
            "For each second; most of its CPU goes there.",
            "ops",
            one(f"topk(10, rate(koordlet_cgroup_files_read_total{_RATE}))", "{{node}}"),
            needs=_KOORDLET,
        ),
        Panel(
            "Failed iterations",
            "By loop. Some are normal while an API server restarts.",
            "ops",
            one(f"sum by (program, loop) (rate(loop_errors_total{_RATE}) {_PROGRAM}) > 0", "{{program}} {{loop}}"),
            needs="an iteration that fails",
        ),
        Panel(
            "Time of iterations",
            "The ten slowest loops.",
            "s",
            one(
                "topk(10, histogram_quantile(0.99, "
                f"sum by (le, job, loop) (rate(loop_duration_seconds_bucket{_RATE}))))",
                "{{job}} {{loop}}",
            ),
        ),
        Panel(
            "Requests to the API server",
            "By program.",
            "ops",
            one(f"sum by (program) (rate(rest_client_requests_total{_RATE}) {_PROGRAM})", "{{program}}"),
        ),
        Panel(
            "Silence of the API server",
            "Seconds since a watch has heard something. Minutes mean that a program decides on old objects.",
            "s",
            one("topk(10, max by (job, kind) (informer_seconds_since_contact))", "{{job}} {{kind}}"),
        ),
        Panel(
            "Objects in memory",
            "What makes the programs grow.",
            "short",
            one("topk(10, sum by (job, kind) (informer_objects))", "{{job}} {{kind}}"),
        ),
        Panel(
            "Time of webhooks",
            "Each pod of the cluster waits for these.",
            "s",
            quantiles("controller_runtime_webhook_latency_seconds", "", "webhook", (0.99,)),
        ),
        Panel(
            "Responses of webhooks",
            "200 also for what is refused; 429 and 5xx are failures.",
            "ops",
            one(
                f"sum by (webhook, code) (rate(controller_runtime_webhook_requests_total{_RATE}))",
                "{{webhook}} {{code}}",
            ),
        ),
        Panel(
            "Keys that controllers have seen to",
            "By controller and result.",
            "ops",
            one(
                f"sum by (controller, result) (rate(koordinator_manager_reconcile_total{_RATE}))",
                "{{controller}} {{result}}",
            ),
        ),
        Panel(
            "Open connections",
            "To ports and sockets of the programs.",
            "short",
            (Query("sum by (job, port) (koordinator_server_connections)", "{{job}} {{port}}"),),
        ),
        Panel(
            "What runs",
            "Every program and its version; two versions at once are an upgrade under way.",
            "short",
            one("sum by (program, version, python_version) (koordinator_build_info)"),
            "table",
        ),
    ),
    {},
    {},
)
