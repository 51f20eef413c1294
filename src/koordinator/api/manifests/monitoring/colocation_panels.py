"""The dashboards of co-location: whether it is safe, what it earns, and each node.

Amounts of CPU are in cores in every panel; koord-manager's sums are in milli-CPU.
"""

from __future__ import annotations

from typing import Final

from koordinator.api.manifests.monitoring.dashboards import Dashboard, Panel, Query, one

_CORES: Final = "suffix: cores"
_KOORDLET: Final = "koordlet on a real node: the nodes of koord up run it without a port for its metrics"
_DEVICES: Final = "koord-device-daemon, on nodes with devices"
_MID_INPUT: Final = 'sum(koord_manager_overcommit_input{{resource="kubernetes.io/mid-cpu",input="{}"}})'
_BATCH_TERM: Final = 'sum(koord_manager_overcommit_term{{resource="kubernetes.io/batch-cpu",term="{}"}})'
_SYSTEM: Final = 'sum(koord_manager_overcommit_input{resource="kubernetes.io/batch-cpu",input="systemUsage"})'

ONLINE_ALLOCATED: Final = f"{_MID_INPUT.format('prodRequests')} / 1000"
"""Cores that prod pods request."""
_OTHERWISE: Final = (
    'sum(koord_manager_overcommit_nodes{resource="kubernetes.io/batch-cpu",policy!="usage",reset=""}) > 0'
)
_BY_USAGE: Final = f"unless on () ({_OTHERWISE})"
"""Where other policies than by usage compute the capacity of a node, the terms do not say what its pods use."""
ONLINE_USED: Final = (
    f"-{_BATCH_TERM.format('podUsage')} / 1000 {_BY_USAGE} "
    "or sum(koordlet_node_used_cpu_cores) - sum(koordlet_be_suppress_be_used_cpu_cores)"
)
"""Cores that pods use which batch pods must leave alone."""
BATCH_USED: Final = (
    f"clamp_min(({_MID_INPUT.format('nodeUsage')} + {_BATCH_TERM.format('podUsage')} - {_SYSTEM}) / 1000, 0) "
    f"{_BY_USAGE} or sum(koordlet_be_suppress_be_used_cpu_cores)"
)
"""Cores that best-effort pods use: what online pods and the system leave of the usage that koord-manager knows of all
nodes, else what those koordlets say that are scraped."""
BATCH_OFFERED: Final = (
    'sum(slo_controller_node_extended_resource_allocatable_internal{resource="kubernetes.io/batch-cpu"})'
)
"""Cores that nodes offer to batch pods."""
BATCH_ALLOCATED: Final = 'sum(koordlet_container_resource_requests{resource="kubernetes.io/batch-cpu"}) / 1000'
"""Cores that batch pods request."""

SAFETY: Final = Dashboard(
    "safety",
    "Koordinator: is it safe?",
    "Whether co-location harms the pods that it must not harm. All is well while every number of the first row is 0.",
    (
        Panel(
            "Nodes that are not trusted",
            "0 is good. The readings of such a node make no sense or have stopped, so it offers nothing to batch pods; "
            "the reason says where to look, and koord explain node says what was seen.",
            "short",
            one("sum(koord_manager_abnormal_nodes)"),
            "stat",
        ),
        Panel(
            "Nodes whose co-location is taken back",
            "0 is good. More means that online pods of these nodes have suffered, and that the adaptive SLO has taken "
            "steps towards its floors.",
            "short",
            one("sum(koord_manager_adapted_nodes) or vector(0)"),
            "stat",
        ),
        Panel(
            "Pods evicted by koordlet in the last hour",
            "A few are the price of overcommitting; many mean that thresholds are too high for these workloads.",
            "short",
            one("sum(increase(koordlet_pod_eviction[1h])) or vector(0)"),
            "stat",
        ),
        Panel(
            "Parts of the SLO configuration in error",
            "0 is good. Where it is not, what was in force before is still in force, and a change has no effect.",
            "short",
            one("sum(koord_manager_slo_configuration_in_error) or vector(0)"),
            "stat",
        ),
        Panel(
            "Untrusted nodes by reason",
            "A single node with AgentMissing or MetricsStopped has a broken koordlet; many at once are a fault of the "
            "network, of the API or of a release.",
            "short",
            one("sum by (reason) (koord_manager_abnormal_nodes)", "{{reason}}"),
        ),
        Panel(
            "Steps of the adaptive SLO",
            "Steps towards the floors are answers to interference; steps back mean that it is over. Both all the time "
            "mean that the thresholds are too tight.",
            "short",
            one("sum by (direction) (increase(koord_manager_slo_adaptation_steps_total[1h]))", "{{direction}}"),
            needs="an adaptive SLO (docs/adaptive-slo.md)",
        ),
        Panel(
            "CPU that best-effort pods may use",
            "What suppression leaves to best-effort pods, by node. It falls when online pods need more: that is how "
            "they are protected.",
            _CORES,
            one("sum by (node, type) (koordlet_be_suppress_cpu_cores)", "{{node}} {{type}}"),
            needs=_KOORDLET,
        ),
        Panel(
            "Pods that wait for CPU most",
            "The share of time in which some task of the pod waited for CPU. An online pod here suffers: koord explain "
            "interference names the suspects.",
            "percent",
            one(
                'topk(10, koordlet_pod_psi{psi_resource_type="cpu",psi_precision="avg60",psi_degree="some"})',
                "{{pod_namespace}}/{{pod_name}}",
            ),
            needs=_KOORDLET,
        ),
        Panel(
            "Pods that stand still for memory most",
            "The share of time in which all tasks of the pod waited for memory. Above some percent the pod does little "
            "else; it needs more memory, or its node has promised too much.",
            "percent",
            one(
                'topk(10, koordlet_pod_psi{psi_resource_type="mem",psi_precision="avg60",psi_degree="full"})',
                "{{pod_namespace}}/{{pod_name}}",
            ),
            needs=_KOORDLET,
        ),
        Panel(
            "Evictions by koordlet",
            "Which pods had to go and why, over five minutes each.",
            "short",
            one("sum by (reason, pod_namespace, pod_name) (koordlet_pod_eviction_detail)"),
            "table",
            needs=f"an eviction, and {_KOORDLET}",
        ),
        Panel(
            "Pods whose cgroups are missing",
            "0 is good. Settings of such a pod are not enforced: koord doctor on the node says why its cgroups are "
            "elsewhere.",
            "short",
            one('sum by (node) (koordlet_pod_cgroups{state="missing"})', "{{node}}"),
            needs=_KOORDLET,
        ),
        Panel(
            "Age of the oldest report",
            "Capacity is computed from reports. It should stay near the interval of reports, a minute by default.",
            "s",
            one(
                "time() - min by (resource) (koord_manager_overcommit_oldest_report_timestamp_seconds)", "{{resource}}"
            ),
        ),
    ),
    {},
    {},
)

EARNINGS: Final = Dashboard(
    "earnings",
    "Koordinator: what does it earn?",
    "What batch pods get of what online pods have been given and do not use.",
    (
        Panel(
            "Core-hours that batch pods have used",
            "In the time that the dashboard shows. Without co-location this work would need nodes of its own.",
            "suffix: core-hours",
            one(f"avg_over_time(({BATCH_USED})[$__range:1m]) * $__range_s / 3600"),
            "stat",
        ),
        Panel(
            "What they are worth",
            "The core-hours at the price of the variable, in its currency.",
            "short",
            one(f"avg_over_time(({BATCH_USED})[$__range:1m]) * $__range_s / 3600 * $price"),
            "stat",
        ),
        Panel(
            "Use of the CPU of the cluster",
            "Of all that nodes have. Compare it with the online pods alone, beside: the difference is what is won.",
            "percentunit",
            one(f"{_MID_INPUT.format('nodeUsage')} / {_MID_INPUT.format('capacity')}"),
            "stat",
        ),
        Panel(
            "Use by online pods alone",
            "What the use of the cluster would be without batch pods.",
            "percentunit",
            one(f"({ONLINE_USED}) / ({_MID_INPUT.format('capacity')} / 1000)"),
            "stat",
        ),
        Panel(
            "CPU given out and used",
            "Online pods use less than they request. The room between the first two lines is what nodes lend; the "
            "batch lines say how much of it is offered and used.",
            _CORES,
            (
                Query(ONLINE_ALLOCATED, "given out to online pods"),
                Query(ONLINE_USED, "used by online pods"),
                Query(BATCH_USED, "used by batch pods"),
                Query(BATCH_OFFERED, "offered to batch pods"),
            ),
        ),
        Panel(
            "CPU used",
            "Online and batch pods on top of each other: the height is the use of the cluster.",
            _CORES,
            (Query(ONLINE_USED, "online pods"), Query(BATCH_USED, "batch pods")),
            is_stacked=True,
        ),
        Panel(
            "Why so much batch CPU is offered",
            "The terms of the sum over all nodes: capacity less what pods use, what the system uses and the safety "
            "margin. The largest negative term is what to change first.",
            _CORES,
            one('sum by (term) (koord_manager_overcommit_term{resource="kubernetes.io/batch-cpu"}) / 1000', "{{term}}"),
        ),
        Panel(
            "Why so much batch memory is offered",
            "As for CPU. Memory cannot be taken back without killing: its margin should be wider.",
            "bytes",
            one('sum by (term) (koord_manager_overcommit_term{resource="kubernetes.io/batch-memory"})', "{{term}}"),
        ),
        Panel(
            "Nodes by policy, or by why they offer nothing",
            "A node with a reset has no batch capacity: the reset says why, such as a stale report.",
            "short",
            one(
                'sum by (policy, reset) (koord_manager_overcommit_nodes{resource="kubernetes.io/batch-cpu"})',
                "{{policy}} {{reset}}",
            ),
        ),
        Panel(
            "Batch CPU requested",
            "Less than what is offered for long: there is not enough batch work, or its requests do not fit.",
            _CORES,
            (Query(BATCH_ALLOCATED, "requested"), Query(BATCH_OFFERED, "offered")),
        ),
    ),
    {},
    {"price": "0.03"},
)

NODES: Final = Dashboard(
    "nodes",
    "Koordinator: nodes",
    "What each node uses, offers and holds back.",
    (
        Panel(
            "Batch CPU offered",
            "A node that offers nothing while others do is full of online pods, not trusted, or not co-located.",
            _CORES,
            one(
                "sum by (node) (slo_controller_node_extended_resource_allocatable_internal"
                '{resource="kubernetes.io/batch-cpu",node=~"$node"})',
                "{{node}}",
            ),
        ),
        Panel(
            "Batch memory offered",
            "As for CPU.",
            "bytes",
            one(
                "sum by (node) (slo_controller_node_extended_resource_allocatable_internal"
                '{resource="kubernetes.io/batch-memory",node=~"$node"})',
                "{{node}}",
            ),
        ),
        Panel(
            "Mid CPU offered",
            "What prod pods have requested and are predicted not to use. 0 without a forecast, or where pods use what "
            "they request.",
            _CORES,
            one(
                "sum by (node) (slo_controller_node_extended_resource_allocatable_internal"
                '{resource="kubernetes.io/mid-cpu",node=~"$node"}) / 1000',
                "{{node}}",
            ),
        ),
        Panel(
            "CPU used",
            "A node far above the others is hot: the load-aware filter should keep pods off it.",
            _CORES,
            one('sum by (node) (koordlet_node_used_cpu_cores{node=~"$node"})', "{{node}}"),
            needs=_KOORDLET,
        ),
        Panel(
            "Memory used",
            "Near the node's memory, koordlet evicts best-effort pods before the kernel kills any.",
            "bytes",
            one('sum by (node) (koordlet_node_used_memory_bytes{node=~"$node"})', "{{node}}"),
            needs=_KOORDLET,
        ),
        Panel(
            "CPU used by best-effort pods",
            "Beside what suppression leaves them: at that line they are held down.",
            _CORES,
            (
                Query('sum by (node) (koordlet_be_suppress_be_used_cpu_cores{node=~"$node"})', "{{node}} used"),
                Query('sum by (node) (koordlet_be_suppress_cpu_cores{node=~"$node"})', "{{node}} left to them"),
            ),
            needs=_KOORDLET,
        ),
        Panel(
            "CPUs that pods share",
            "What is not bound to single pods. A small pool throttles all pods without CPUs of their own.",
            _CORES,
            (
                Query('sum by (node) (koordlet_cpuset_share_pool_cpu_cores{node=~"$node"})', "{{node}}"),
                Query('sum by (node) (koordlet_cpuset_be_share_pool_cpu_cores{node=~"$node"})', "{{node}} best effort"),
            ),
            needs=_KOORDLET,
        ),
        Panel(
            "Usage reported by NUMA node",
            "One NUMA node full beside an empty one: pods with CPUs of their own are placed badly.",
            _CORES,
            one(
                'sum by (node, numa_node_id) (koordlet_node_metric_numa_node_usage{resource="cpu",node=~"$node"})',
                "{{node}} NUMA node {{numa_node_id}}",
            ),
            needs=_KOORDLET,
        ),
        Panel(
            "System usage reported",
            "What runs outside of pods. It is kept from batch pods; growth without pods is a fault of the node.",
            _CORES,
            one('sum by (node) (koordlet_node_metric_system_usage{resource="cpu",node=~"$node"})', "{{node}}"),
            needs=_KOORDLET,
        ),
        Panel(
            "Devices",
            "A device that is not healthy is given to no pod any more.",
            "short",
            one("sum by (vendor, healthy) (koord_device_daemon_devices)", "{{vendor}} healthy: {{healthy}}"),
            needs=_DEVICES,
        ),
        Panel(
            "Nodes whose secondary devices are not planned well",
            "0 is good. 1: pods have GPUs of this node and network cards of another PCIe switch.",
            "short",
            one("sum by (node_name) (scheduler_secondary_device_not_well_planned)", "{{node_name}}"),
            needs="nodes with GPUs and RDMA cards",
        ),
    ),
    {"node": "label_values(slo_controller_node_extended_resource_allocatable_internal, node)"},
    {},
)
