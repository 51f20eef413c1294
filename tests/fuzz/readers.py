"""Who decodes what comes from outside, by the test that gives it broken content. A module that begins to decode has to
be entered here: write with which of the tests it is reached, or add to one that it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

BROKEN_BY: Final[Mapping[str, Sequence[str]]] = {
    "fuzz/test_objects.py": (
        *("api/adaptive_slo.py", "api/device_share.py", "api/document.py", "api/modification.py"),
        *("kube/decoding.py", "kube/watch.py", "model/gang_declaration.py", "model/raw_allocatable.py"),
        *("model/overcommit/facts.py", "model/overcommit/plan.py", "model/quota_tree/annotation_values.py"),
        *("model/slo_adaptation.py", "model/transformers.py", "model/slo_configuration/abnormality_limits.py"),
        *("model/slo_configuration/documents.py", "model/slo_configuration/node_slo.py"),
        *("descheduler/drain/controller.py", "descheduler/drain/pod_rules.py", "descheduler/plan_controller.py"),
        *("descheduler/migration/controller.py", "descheduler/migration/recent_evictions.py"),
        *("descheduler/migration/workloads.py", "koordlet/enforce/policy.py", "koordlet/pods/cpu_allocation.py"),
        *("koordlet/enforce/strategies/eviction.py", "koordlet/enforce/strategies/snapshot.py"),
        *("koordlet/report/node_topology/description.py", "koordlet/report/node_topology/reporter.py"),
        *("manager/colocation_profile/pod_writer.py", "manager/node_resource/explanations.py"),
        *("manager/quota_profile/decision.py", "manager/recommender/checkpoints.py", "manager/recommender/policy.py"),
        *("manager/recommender/resize_decision.py", "manager/recommender/targets.py"),
        *("scheduler/plugins/device_share/binding.py", "scheduler/plugins/device_share/demand.py"),
        *("scheduler/plugins/device_share/part.py", "scheduler/plugins/load_aware/pod_load.py"),
        *("scheduler/plugins/load_aware/settings.py", "scheduler/plugins/node_numa_resource/node_topology.py"),
        *("scheduler/plugins/node_numa_resource/pod_requirements.py", "scheduler/plugins/reservation/booking.py"),
        *("scheduler/plugins/reservation/matching.py", "scheduler/plugins/reservation/reserve_pod.py"),
        *("scheduler/plugins/scheduling_hint.py", "scheduler/plugins/volumes/finder.py"),
    ),
    "fuzz/test_admission.py": (
        *("manager/webhook/config_map/validating.py", "manager/webhook/elastic_quota/validating.py"),
        *("manager/webhook/node/status_mutating.py", "manager/webhook/node/validating.py"),
        *("manager/webhook/pod/enhanced_rules.py", "manager/webhook/pod/recommended_requests.py"),
        *("manager/webhook/pod/resource_specs.py", "manager/webhook/pod/rules.py", "manager/webhook/review.py"),
        *("manager/webhook/admission_queue.py", "manager/webhook/reservation/mutating.py", "model/typing_mistakes.py"),
    ),
    "fuzz/test_readings.py": (
        *("api/strict_decoding.py", "api/xpu_device_info.py", "base/strict_yaml.py", "device_daemon/options.py"),
        *("koordlet/enforce/hooks/hook_server.py", "koordlet/enforce/hooks/nri_plugin.py", "kube/kubeconfig.py"),
        *("koordlet/observe/prediction/checkpoints.py", "koordlet/report/devices/xpu_files.py"),
        *("koordlet/report/node_topology/kubelet_cpus.py", "node/kubelet.py", "runtime_proxy/checkpoints.py"),
        *("runtime_proxy/hook_servers.py", "node/block_devices.py", "node/cgroup_reader.py", "node/cpu_time.py"),
        *("node/cpu_topology.py", "node/kidled.py", "node/memory.py", "node/pci.py", "node/pressure.py"),
        *("node/rdma.py", "node/resctrl.py", "node/scheduling_delay.py", "node/host.py"),
    ),
    "runtime_proxy/test_real_world.py": (
        *("runtime_proxy/hook_dispatcher.py", "runtime_proxy/interceptor.py", "runtime_proxy/runtime_client.py"),
    ),
    "runtime_proxy/test_docker.py": ("runtime_proxy/docker_interceptor.py",),
    "koordlet/observe/metric_cache/test_backends.py": ("koordlet/observe/metric_cache/sqlite.py",),
    "koordlet/report/audit/test_pages.py": ("koordlet/report/audit/pages.py",),
    "koordlet/enforce/hooks/test_nri_plugin.py": ("node/ttrpc.py",),
    "koordlet/enforce/executor/test_executor.py": ("node/kernel_writer.py",),
    "kube/test_credentials.py": ("kube/exec_credentials.py",),
    "kube/test_client.py": ("kube/discovery.py",),
    "manager/audit/test_store.py": ("manager/audit/store.py",),
    "manager/recommender/test_history.py": ("kube/prometheus.py",),
    "manager/webhook/test_configuration_sync.py": ("manager/webhook/configuration_rewrite.py",),
    "node/test_core_scheduling.py": ("node/core_scheduling.py",),
    "node/test_features.py": ("node/features.py",),
    "node/test_node_programs.py": ("node/node_programs.py",),
    "node/test_machine_readings.py": ("node/network_counters.py", "node/perf_events.py"),
}
"""By the path of the test."""
OF_THEIR_OWN: Final = frozenset({"base/build.py", "descheduler/pages.py", "scheduler/services/routes.py"})
"""They decode what the program itself or its distribution has written."""
KINDS: Final[Mapping[str, frozenset[str]]] = {
    "scheduler": frozenset(
        {
            *("nodes", "pods", "namespaces", "services", "replicationcontrollers", "replicasets", "statefulsets"),
            *("persistentvolumes", "persistentvolumeclaims", "storageclasses", "csinodes", "csidrivers"),
            *("csistoragecapacities", "volumeattachments", "poddisruptionbudgets", "configmaps", "workloads"),
            *("nodemetrics", "noderesourcetopologies", "devices", "reservations", "podgroups", "elasticquotas"),
            *("recommendations", "clusternetworktopologies"),
        }
    ),
    "manager": frozenset(
        {
            *("nodes", "pods", "namespaces", "configmaps", "limitranges", "nodemetrics", "nodeslos", "devices"),
            *("noderesourcetopologies", "elasticquotas", "elasticquotaprofiles", "recommendations"),
            "clustercolocationprofiles",
        }
    ),
    "descheduler": frozenset(
        {
            *("nodes", "pods", "namespaces", "persistentvolumeclaims", "poddisruptionbudgets", "priorityclasses"),
            *("replicationcontrollers", "replicasets", "deployments", "statefulsets", "clonesets", "workloads"),
            *("nodemetrics", "reservations", "podmigrationjobs", "podgroups", "recommendations", "drainnodes"),
            "drainnodegroups",
        }
    ),
    "koordlet": frozenset({"nodes", "nodemetrics", "nodeslos", "noderesourcetopologies", "devices", "configmaps"}),
}
"""What each program watches, with all that can be switched on."""
