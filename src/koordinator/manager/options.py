"""The options of koord-manager, grouped by the part that reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from koordinator.api import slo_controller_config
from koordinator.api.installation import NAMESPACE
from koordinator.base.feature_gates import FeatureGates
from koordinator.base.listen_address import ListenAddress
from koordinator.base.name_list import is_enabled
from koordinator.base.option_flags import duration, group, integer, listen_address, number, switch, text, texts
from koordinator.kube.secure_options import TITLE as SECURE
from koordinator.kube.secure_options import SecureOptions
from koordinator.manager import features as gates
from koordinator.manager.audit.options import TITLE as AUDIT
from koordinator.manager.audit.options import AuditOptions
from koordinator.manager.environment import WebhookEnvironment
from koordinator.manager.features import make_features
from koordinator.manager.recommender.options import TITLE as RECOMMENDER
from koordinator.manager.recommender.options import RecommenderOptions
from koordinator.manager.webhook.admission_queue import AdmissionQueueSettings
from koordinator.manager.webhook.pod.binding import BindingAdmissionSettings
from koordinator.model.overcommit.policies import FREE_RESOURCE, KNOWN_PLUGINS

CONTROLLERS: Final = ("colocationprofile", "nodemetric", "noderesource", "nodeslo", "quotaprofile", "recommender")
PROFILE_ADDRESS: Final = ListenAddress("127.0.0.1", 8090, "--pprof-addr")
CLUSTER: Final = "Cluster"
ELECTION: Final = "Leader election"
SERVING: Final = "Serving and logging"
CONTROLLER: Final = "Controller"
WEBHOOK: Final = "Webhook"
TITLES: Final = (CLUSTER, ELECTION, SERVING, SECURE, CONTROLLER, WEBHOOK, RECOMMENDER, AUDIT)
"""The headings of the help text, in this order."""
_PLUGIN_GATES: Final = {FREE_RESOURCE: gates.FREE_RESOURCE}
_LIST: Final = "names, * for all others, -NAME for all but that one; the first that names it decides.\nAll: "


@dataclass(frozen=True, slots=True)
class PodEnhancedValidatorOptions:
    """Where the rules of the gate EnablePodEnhancedValidator are, and how often they are read."""

    config_namespace: str = text(
        "pod-enhanced-validator-config-namespace",
        NAMESPACE,
        "The namespace of the ConfigMap with further rules for pods (feature EnablePodEnhancedValidator).",
    )
    config_name: str = text("pod-enhanced-validator-config-name", "pod-enhanced-validator-config", "Its name.")
    reconcile_interval: timedelta = duration(
        "pod-enhanced-validator-reconcile-interval",
        timedelta(minutes=5),
        "A change of it is in force after so long at most; 0: at once.",
    )


@dataclass(frozen=True, slots=True)
class QuotaUpdateOptions:
    """How often, and with which pauses, the pod webhook retries to write a quota's usage."""

    max_retries: int = integer(
        "quota-update-max-retries",
        3,
        "How often to try again to write what a quota has used (feature EnableQuotaAdmission): three times, and "
        "once more for each doubling of the pods that are counted together, up to this many; less than 3 means 3.",
    )
    retry_jitter: timedelta = duration(
        "quota-update-retry-jitter",
        timedelta(0),
        "Wait for half of this to all of it after a conflict with another replica; 0: do not wait. 50ms suits "
        "several replicas.",
    )
    max_total_jitter: timedelta = duration(
        "quota-update-max-total-jitter",
        timedelta(seconds=1),
        "The longest that such waits add up to for one write.",
    )
    conflict_fresh_get: bool = switch(
        "quota-update-conflict-fresh-get",
        False,
        "After a conflict read the quota from the API server instead of from what was watched.",
    )


@dataclass(frozen=True, slots=True)
class ColocationProfileOptions:
    """How the colocation profile controller updates existing pods."""

    reconcile_by_default: bool = switch(
        "colocation-profile-reconcile-by-default",
        False,
        "Bring existing pods in line with every ClusterColocationProfile, not only with those that are labelled "
        "config.koordinator.sh/controller-managed=true (feature ColocationProfileController).",
    )
    reconcile_interval: timedelta = duration(
        "colocation-profile-reconcile-interval",
        timedelta(seconds=30),
        "How often to do so; 0: only when a profile changes.",
    )
    force_update_pod_duration: timedelta = duration(
        "colocation-profile-force-update-pod-duration",
        timedelta(minutes=5),
        "Look again after so long at a pod that a profile has been applied to, and write it if it is not in line; "
        "0: not until the profile changes.",
    )
    expire_pod_cache_duration: timedelta = duration(
        "colocation-profile-expire-pod-cache-duration",
        timedelta(minutes=10),
        "How often to drop from memory the pods that are gone or are to be looked at again.",
    )
    update_pod_qps: float = number(
        "colocation-profile-update-pod-qps", 10.0, "Pods to write a second; 0: the burst and no more."
    )
    update_pod_qps_burst: int = integer(
        "colocation-profile-update-pod-qps-burst", 100, "Pods to write at once, after a pause."
    )


@dataclass(frozen=True, slots=True)
class Options:
    """All options and their flags, with the original's defaults except for the addresses, which are loopback here."""

    kubeconfig: str = text(
        "kubeconfig",
        "",
        "How to reach the cluster; without it, KUBECONFIG, ~/.kube/config or the service account of the pod that "
        "this runs in.",
        placeholder="file",
        under=CLUSTER,
    )
    qps: int = integer("rest-config-qps", 30, "Requests a second; 0 or less: no limit.", under=CLUSTER)
    burst: int = integer("rest-config-burst", 50, "Requests at once.", under=CLUSTER)
    namespace: str = text(
        "namespace",
        "",
        "Of pods, quotas and quota profiles watch those of this namespace only; empty: those of all.",
        under=CLUSTER,
    )
    config_namespace: str = text(
        "config-namespace", NAMESPACE, "The namespace of the ConfigMap of --slo-config-name.", under=CLUSTER
    )
    slo_config_name: str = text(
        "slo-config-name",
        slo_controller_config.DEFAULT_NAME,
        "The ConfigMap that says how nodes are overcommitted and how they keep quality of service.",
        under=CLUSTER,
    )
    leader_election: bool = switch(
        "enable-leader-election",
        True,
        "Run controllers only while holding the lease koordinator-manager; webhooks are served either way.",
        under=ELECTION,
    )
    leader_election_namespace: str = NAMESPACE
    metrics_address: ListenAddress = listen_address(
        "metrics-addr",
        ListenAddress("127.0.0.1", 8080, "--metrics-addr"),
        "Where to serve /metrics, and the same under /internal-metrics, /external-metrics and /all-metrics; :8080 "
        "is every address of the machine, 0 serves nothing. No authentication.",
        under=SERVING,
    )
    health_address: ListenAddress = listen_address(
        "health-probe-addr",
        ListenAddress("127.0.0.1", 8000, "--health-probe-addr"),
        "Where to serve /readyz (with the check webhook-ready), /livez and /healthz, for the probes of a kubelet.",
        under=SERVING,
    )
    secure: SecureOptions = group(SECURE, SecureOptions)
    profile_address: ListenAddress = PROFILE_ADDRESS
    verbosity: int = integer(
        "v", 2, "How much to log; from 4 on also which requests are sent again.", minimum=0, under=SERVING
    )
    controllers: tuple[str, ...] = texts(
        "controllers", CONTROLLERS, f"The controllers to run: {_LIST}{', '.join(CONTROLLERS)}", under=CONTROLLER
    )
    node_resource_plugins: tuple[str, ...] = texts(
        "noderesource-plugins",
        KNOWN_PLUGINS,
        f"The parts of the noderesource controller: {_LIST}{', '.join(KNOWN_PLUGINS)}",
        under=CONTROLLER,
    )
    colocation_profile: ColocationProfileOptions = group(CONTROLLER, ColocationProfileOptions)
    node_strategy_name_needed: bool = False
    webhook_client_authority: str = text(
        "webhook-client-ca-file",
        "",
        "Authorities (PEM) of the certificates that API servers show when they call webhooks: without one of theirs a "
        "request gets 401, and its connection is closed first when there are too many. Empty: everybody may call.",
        placeholder="file",
        under=WEBHOOK,
    )
    admission_queue: AdmissionQueueSettings = group(WEBHOOK, AdmissionQueueSettings)
    pod_enhanced_validator: PodEnhancedValidatorOptions = group(WEBHOOK, PodEnhancedValidatorOptions)
    quota_update: QuotaUpdateOptions = group(WEBHOOK, QuotaUpdateOptions)
    binding_admission: BindingAdmissionSettings = group(WEBHOOK, BindingAdmissionSettings)
    recommender: RecommenderOptions = group(RECOMMENDER, RecommenderOptions)
    audit: AuditOptions = group(AUDIT, AuditOptions)
    features: FeatureGates = field(default_factory=make_features)
    environment: WebhookEnvironment = field(default_factory=WebhookEnvironment)
    remarks: tuple[str, ...] = ()
    """A sentence for each flag that was given and will not have the expected effect."""

    def runs_controller(self, name: str) -> bool:
        """Whether ``--controllers`` enables this controller."""
        return is_enabled(name, self.controllers)

    def runs_node_resource_plugin(self, name: str) -> bool:
        """Whether ``--noderesource-plugins`` enables this plugin, and so does its feature gate if it has one."""
        gate = _PLUGIN_GATES.get(name)
        return is_enabled(name, self.node_resource_plugins) and (gate is None or self.features.enabled(gate))
