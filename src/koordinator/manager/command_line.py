"""The command line of koord-manager: the flags of the Go original, with its defaults but for loopback addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import koordinator
from koordinator.base.durations import DurationError, parse_duration
from koordinator.base.flag_types import FlagGroup
from koordinator.base.flags import FlagSet, FlagValues
from koordinator.base.listen_address import NOWHERE
from koordinator.base.name_list import unknown_names
from koordinator.base.unused_flags import KLOG_FLAGS, KLOG_SWITCHES, UnusedFlags
from koordinator.manager.environment import read_environment
from koordinator.manager.features import BINDING_ADMISSION_WEBHOOK, make_features
from koordinator.manager.options import (
    CONTROLLERS,
    ColocationProfileOptions,
    Options,
    PodEnhancedValidatorOptions,
    QuotaUpdateOptions,
)
from koordinator.manager.recommender.flags import RecommenderFlags
from koordinator.manager.webhook.pod.binding import BindingAdmissionSettings
from koordinator.model.overcommit.policies import PLUGINS

_LIST: Final = "names, * for all others, -NAME for all but that one; the first that names it decides.\nAll: "
_PROFILE: Final = ColocationProfileOptions()
_VALIDATOR: Final = PodEnhancedValidatorOptions()
_QUOTA: Final = QuotaUpdateOptions()
_BINDING: Final = BindingAdmissionSettings()
_NO_DEEP_COPY: Final = "disable-no-deepcopy"
_UNUSED_FLAGS: Final = {**KLOG_FLAGS, _NO_DEEP_COPY: "objects are shared and never changed, so nothing is copied"}
"""Flags of the original that do nothing here, and why: no manifest fails over them."""
_DEFAULTS: Final = Options()
_DESCRIPTION: Final = """\
Turns idle capacity into batch and mid capacity, writes the policies that node agents follow, and guards pods, nodes,
quotas and configuration at the door of the API server, in place of the Go koord-manager: it takes the same flags and
environment, takes part in the same leader election, and keeps the same webhook configurations and certificates.

Every replica serves webhooks; the leader alone runs controllers. Where webhooks are served, the environment says:
  WEBHOOK_PORT (9876), WEBHOOK_HOST (empty: through the Service), WEBHOOK_CERT_DIR (/tmp/koordinator-webhook-certs),
  WEBHOOK_CERT_WRITER (secret, or fs where WEBHOOK_HOST is set), POD_NAMESPACE (koordinator-system),
  SERVICE_NAME (koordinator-webhook-service), SECRET_NAME (koordinator-webhook-certs),
  MUTATING_WEBHOOK_NAME (koordinator-mutating-webhook-configuration),
  VALIDATING_WEBHOOK_NAME (koordinator-validating-webhook-configuration).

Examples, on a cluster that has its definitions, namespace and webhook configurations (docs/manager.md says how):
  koord-manager --metrics-addr=:8080 --health-probe-addr=:8000
      In a pod: metrics and health for all clients.
  koord-manager --kubeconfig="$HOME/.kube/config" --feature-gates=WebhookFramework=false
      Outside of the cluster, the controllers alone.
  WEBHOOK_HOST=127.0.0.1 koord-manager --kubeconfig="$HOME/.kube/config" --enable-leader-election=false
      Beside an API server of this machine, which then calls https://127.0.0.1:9876.
  koord-manager '--controllers=*,-noderesource' --feature-gates=NodeMutatingWebhook=true
      All controllers but one, and one webhook more than usual."""


class ControllerFlags:
    """Which controllers run, and how the one for colocation profiles does."""

    def __init__(self, group: FlagGroup) -> None:
        self.controllers = group.strings(
            "controllers", CONTROLLERS, f"The controllers to run: {_LIST}{', '.join(CONTROLLERS)}"
        )
        self.node_resource_plugins = group.strings(
            "noderesource-plugins",
            PLUGINS,
            f"The parts of the noderesource controller: {_LIST}{', '.join(PLUGINS)}",
        )
        self._by_default = group.boolean(
            "colocation-profile-reconcile-by-default",
            _PROFILE.reconcile_by_default,
            "Bring existing pods in line with every ClusterColocationProfile, not only with those that are labelled "
            "config.koordinator.sh/controller-managed=true (feature ColocationProfileController).",
        )
        self._interval = group.duration(
            "colocation-profile-reconcile-interval",
            _PROFILE.reconcile_interval,
            "How often to do so; 0: only when a profile changes.",
        )
        self._force_update = group.duration(
            "colocation-profile-force-update-pod-duration",
            _PROFILE.force_update_pod_duration,
            "Look again after so long at a pod that a profile has been applied to, and write it if it is not in line; "
            "0: not until the profile changes.",
        )
        self._expire = group.duration(
            "colocation-profile-expire-pod-cache-duration",
            _PROFILE.expire_pod_cache_duration,
            "How often to drop from memory the pods that are gone or are to be looked at again.",
        )
        self._qps = group.number(
            "colocation-profile-update-pod-qps",
            _PROFILE.update_pod_qps,
            "Pods to write a second; 0: the burst and no more.",
        )
        self._burst = group.integer(
            "colocation-profile-update-pod-qps-burst",
            _PROFILE.update_pod_qps_burst,
            "Pods to write at once, after a pause.",
        )

    def colocation_profile(self, given: FlagValues) -> ColocationProfileOptions:
        return ColocationProfileOptions(
            reconcile_by_default=given[self._by_default],
            reconcile_interval=given[self._interval],
            force_update_pod_duration=given[self._force_update],
            expire_pod_cache_duration=given[self._expire],
            update_pod_qps=given[self._qps],
            update_pod_qps_burst=given[self._burst],
        )


class WebhookFlags:
    """What webhooks check, and how they keep account of quotas."""

    def __init__(self, group: FlagGroup) -> None:
        self.node_strategy_name = group.string(
            "node-strategy-name-need-check",
            "false",
            "true has the ConfigMap webhook refuse node strategies without a name, or with one that is taken.",
        )
        self._validator(group)
        self._quota(group)
        self._binding(group)

    def _validator(self, group: FlagGroup) -> None:
        self._validator_namespace = group.string(
            "pod-enhanced-validator-config-namespace",
            _VALIDATOR.config_namespace,
            "The namespace of the ConfigMap with further rules for pods (feature EnablePodEnhancedValidator).",
        )
        self._validator_name = group.string("pod-enhanced-validator-config-name", _VALIDATOR.config_name, "Its name.")
        self._validator_interval = group.duration(
            "pod-enhanced-validator-reconcile-interval",
            _VALIDATOR.reconcile_interval,
            "A change of it is in force after so long at most; 0: at once.",
        )

    def _quota(self, group: FlagGroup) -> None:
        self._retries = group.integer(
            "quota-update-max-retries",
            _QUOTA.max_retries,
            "How often to try again to write what a quota has used (feature EnableQuotaAdmission): three times, and "
            "once more for each doubling of the pods that are counted together, up to this many; less than 3 means 3.",
        )
        self._jitter = group.duration(
            "quota-update-retry-jitter",
            _QUOTA.retry_jitter,
            "Wait for half of this to all of it after a conflict with another replica; 0: do not wait. 50ms suits "
            "several replicas.",
        )
        self._total_jitter = group.duration(
            "quota-update-max-total-jitter",
            _QUOTA.max_total_jitter,
            "The longest that such waits add up to for one write.",
        )
        self._fresh_get = group.boolean(
            "quota-update-conflict-fresh-get",
            _QUOTA.conflict_fresh_get,
            "After a conflict read the quota from the API server instead of from what was watched.",
        )

    def _binding(self, group: FlagGroup) -> None:
        self._user_names = group.strings(
            "binding-admission-user-name",
            _BINDING.user_names,
            "Parts of the names of users who may bind pods, such as koord-scheduler; empty: everybody may (feature "
            "BindingAdmissionWebhook).",
        )
        self._dry_run = group.boolean(
            "binding-admission-dry-run",
            _BINDING.dry_run,
            "Let everybody bind, but log and count who would be refused.",
        )
        self._namespaces = group.strings(
            "binding-admission-namespaces",
            _BINDING.namespaces,
            "The namespaces where this is checked; * is all of them, empty is none, where everybody may bind.",
        )
        self._exclude_namespaces = group.strings(
            "binding-admission-exclude-namespaces",
            _BINDING.excluded_namespaces,
            "The namespaces where everybody may bind; they win over --binding-admission-namespaces.",
        )
        self._bypass_labels = group.strings(
            "binding-admission-bypass-labels", _BINDING.bypass_labels, "Pods with such a label may be bound by anybody."
        )
        self._bypass_annotations = group.strings(
            "binding-admission-bypass-annotations",
            _BINDING.bypass_annotations,
            "Pods with such an annotation may be bound by anybody.",
        )

    def pod_enhanced_validator(self, given: FlagValues) -> PodEnhancedValidatorOptions:
        return PodEnhancedValidatorOptions(
            config_namespace=given[self._validator_namespace],
            config_name=given[self._validator_name],
            reconcile_interval=given[self._validator_interval],
        )

    def quota_update(self, given: FlagValues) -> QuotaUpdateOptions:
        return QuotaUpdateOptions(
            max_retries=given[self._retries],
            retry_jitter=given[self._jitter],
            max_total_jitter=given[self._total_jitter],
            conflict_fresh_get=given[self._fresh_get],
        )

    def binding_admission(self, given: FlagValues) -> BindingAdmissionSettings:
        return BindingAdmissionSettings(
            user_names=given[self._user_names],
            dry_run=given[self._dry_run],
            namespaces=given[self._namespaces],
            excluded_namespaces=given[self._exclude_namespaces],
            bypass_labels=given[self._bypass_labels],
            bypass_annotations=given[self._bypass_annotations],
        )


class _Flags:
    """All flags, with the handles of those that are read."""

    def __init__(self) -> None:
        self.set = FlagSet("koord-manager", _DESCRIPTION, koordinator.__version__)
        self.features = make_features()
        self._cluster(self.set.group("Cluster"))
        self._election(self.set.group("Leader election"))
        self._serving(self.set.group("Serving and logging"))
        self.controllers = ControllerFlags(self.set.group("Controller"))
        self.webhooks = WebhookFlags(self.set.group("Webhook"))
        self.recommender = RecommenderFlags(self.set.group("Recommender (feature Recommender)"))
        self.gates = self.set.group("Feature").feature_gates(self.features)
        self.unused = UnusedFlags(self.set, _UNUSED_FLAGS, KLOG_SWITCHES | {_NO_DEEP_COPY})

    def _cluster(self, group: FlagGroup) -> None:
        self.kubeconfig = group.string(
            "kubeconfig",
            "",
            "How to reach the cluster; without it, KUBECONFIG, ~/.kube/config or the service account of the pod that "
            "this runs in.",
            placeholder="file",
        )
        self.qps = group.integer("rest-config-qps", _DEFAULTS.qps, "Requests a second; 0 or less: no limit.")
        self.burst = group.integer("rest-config-burst", _DEFAULTS.burst, "Requests at once.")
        self.namespace = group.string(
            "namespace",
            "",
            "Of pods, quotas and quota profiles watch those of this namespace only; empty: those of all.",
        )
        self.sync_period = group.string(
            "sync-period",
            "",
            "Accepted; what is watched does not go stale, so nothing has to be looked at again.",
            placeholder="duration",
        )
        self.config_namespace = group.string(
            "config-namespace", _DEFAULTS.config_namespace, "The namespace of the ConfigMap of --slo-config-name."
        )
        self.slo_config_name = group.string(
            "slo-config-name",
            _DEFAULTS.slo_config_name,
            "The ConfigMap that says how nodes are overcommitted and how they keep quality of service.",
        )

    def _election(self, group: FlagGroup) -> None:
        self.election = group.boolean(
            "enable-leader-election",
            True,
            "Run controllers only while holding the lease koordinator-manager; webhooks are served either way.",
        )
        self.election_namespace = group.string(
            "leader-election-namespace",
            _DEFAULTS.leader_election_namespace,
            "The namespace of the lease; empty: that of POD_NAMESPACE.",
        )
        self.election_lock = group.string(
            "leader-elect-resource-lock",
            "leases",
            "What the lease is kept in; Kubernetes has given up the others.",
            allowed=("leases",),
        )

    def _serving(self, group: FlagGroup) -> None:
        self.metrics_address = group.listen_address(
            "metrics-addr",
            _DEFAULTS.metrics_address,
            "Where to serve /metrics, and the same under /internal-metrics, /external-metrics and /all-metrics; :8080 "
            "is every address of the machine, 0 serves nothing. No authentication.",
        )
        self.health_address = group.listen_address(
            "health-probe-addr",
            _DEFAULTS.health_address,
            "Where to serve /readyz (with the check webhook-ready), /livez and /healthz, for the probes of a kubelet.",
        )
        self.pprof = group.boolean("enable-pprof", True, "Serve profiles of this program under /debug/pprof.")
        self.pprof_address = group.listen_address(
            "pprof-addr", _DEFAULTS.profile_address, "Where to serve them. No authentication."
        )
        self.verbosity = group.integer(
            "v", 2, "How much to log; from 4 on also which requests are sent again.", minimum=0
        )


def parse_options(arguments: Sequence[str], variables: Mapping[str, str]) -> Options:
    """Read the command line and the environment.

    Ends the process after --help, --version, or with one line about what is wrong with a flag. Raises
    ConfigurationError for the environment.
    """
    flags = _Flags()
    given = flags.set.parse_or_exit(arguments)
    environment = read_environment(variables)
    return Options(
        kubeconfig=given[flags.kubeconfig],
        qps=given[flags.qps],
        burst=given[flags.burst],
        namespace=given[flags.namespace],
        metrics_address=given[flags.metrics_address],
        health_address=given[flags.health_address],
        profile_address=given[flags.pprof_address] if given[flags.pprof] else NOWHERE,
        leader_election=given[flags.election],
        leader_election_namespace=given[flags.election_namespace] or environment.namespace,
        controllers=given[flags.controllers.controllers],
        node_resource_plugins=given[flags.controllers.node_resource_plugins],
        slo_config_name=given[flags.slo_config_name],
        config_namespace=given[flags.config_namespace],
        node_strategy_name_needed=given[flags.webhooks.node_strategy_name] == "true",
        pod_enhanced_validator=flags.webhooks.pod_enhanced_validator(given),
        quota_update=flags.webhooks.quota_update(given),
        binding_admission=flags.webhooks.binding_admission(given),
        colocation_profile=flags.controllers.colocation_profile(given),
        recommender=flags.recommender.options(given),
        features=flags.features,
        verbosity=given[flags.verbosity],
        environment=environment,
        remarks=tuple(_remarks(flags, given)),
    )


def _remarks(flags: _Flags, given: FlagValues) -> list[str]:
    remarks = flags.unused.remarks(given)
    remarks += flags.features.without_effect()
    remarks += _sync_period_remark(given[flags.sync_period])
    remarks += _binding_remarks(flags, given)
    controllers = given[flags.controllers.controllers]
    remarks += [f"--controllers: {text}" for text in unknown_names(controllers, CONTROLLERS)]
    plugins = given[flags.controllers.node_resource_plugins]
    remarks += [f"--noderesource-plugins: {text}" for text in unknown_names(plugins, PLUGINS)]
    return remarks


def _binding_remarks(flags: _Flags, given: FlagValues) -> list[str]:
    settings, gate = flags.webhooks.binding_admission(given), BINDING_ADMISSION_WEBHOOK
    if not flags.features.enabled(gate):
        return []
    if not settings.user_names:
        nobody = "--binding-admission-user-name names no user, so everybody may bind pods"
        return [f"feature gate {gate} refuses no request: {nobody}"]
    if not settings.namespaces:
        nowhere = "--binding-admission-namespaces names no namespace; write * for all of them"
        return [f"feature gate {gate} refuses no request: {nowhere}"]
    return []


def _sync_period_remark(text: str) -> list[str]:
    try:
        if parse_duration(text or "0") <= timedelta(0):
            return []
    except DurationError as error:
        return [f"--sync-period is ignored: {error}"]
    return ["--sync-period has no effect: what is watched does not go stale, and controllers have periods of their own"]
