"""The command line of koord-manager: the Go original's flags, with its defaults but for loopback addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import koordinator
from koordinator.base.durations import DurationError, parse_duration
from koordinator.base.flag_types import FlagGroup
from koordinator.base.flags import FlagSet, FlagValues
from koordinator.base.listen_address import NOWHERE
from koordinator.base.unused_flags import UnusedFlags
from koordinator.manager.command_line_parts import ControllerFlags, WebhookFlags
from koordinator.manager.environment import read_environment
from koordinator.manager.features import BINDING_ADMISSION_WEBHOOK, WITHOUT_EFFECT, make_features
from koordinator.manager.name_list import unknown_names
from koordinator.manager.options import CONTROLLERS, Options
from koordinator.manager.unused_flags import SWITCHES, UNUSED_FLAGS
from koordinator.model.overcommit.policies import PLUGINS

_DEFAULTS: Final = Options()
_DESCRIPTION: Final = """\
Turns idle capacity into batch and mid capacity, writes the policies that node agents follow, and guards pods, nodes,
quotas and configuration at the door of the API server, in place of the Go koord-manager: it takes the same flags and
environment, takes part in the same leader election, and keeps the same webhook configurations and certificates.

Every replica answers webhooks; the leader alone runs controllers. Where webhooks are served, the environment says:
  WEBHOOK_PORT (9876), WEBHOOK_HOST (empty: through the Service), WEBHOOK_CERT_DIR (/tmp/koordinator-webhook-certs),
  WEBHOOK_CERT_WRITER (secret, or fs where WEBHOOK_HOST is set), POD_NAMESPACE (koordinator-system),
  SERVICE_NAME (koordinator-webhook-service), SECRET_NAME (koordinator-webhook-certs),
  MUTATING_WEBHOOK_NAME (koordinator-mutating-webhook-configuration),
  VALIDATING_WEBHOOK_NAME (koordinator-validating-webhook-configuration).

Examples, on a cluster that has its definitions, namespace and webhook configurations (docs/manager.md says how):
  koord-manager --metrics-addr=:8080 --health-probe-addr=:8000
      In a pod: metrics and health for whoever asks.
  koord-manager --kubeconfig="$HOME/.kube/config" --feature-gates=WebhookFramework=false
      Outside of the cluster, the controllers alone.
  WEBHOOK_HOST=127.0.0.1 koord-manager --kubeconfig="$HOME/.kube/config" --enable-leader-election=false
      Beside an API server of this machine, which then asks https://127.0.0.1:9876.
  koord-manager '--controllers=*,-noderesource' --feature-gates=NodeMutatingWebhook=true
      All controllers but one, and one webhook more than usual."""


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
        self.gates = self.set.group("Feature").feature_gates(self.features)
        self.unused = UnusedFlags(self.set, UNUSED_FLAGS, SWITCHES)

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
            "Run controllers only while holding the lease koordinator-manager; webhooks are answered either way.",
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
        features=flags.features,
        verbosity=given[flags.verbosity],
        environment=environment,
        remarks=tuple(_remarks(flags, given)),
    )


def _remarks(flags: _Flags, given: FlagValues) -> list[str]:
    remarks = flags.unused.remarks(given)
    remarks += [
        f"feature gate {name} has no effect: only the scheduler reads it"
        for name in given[flags.gates]
        if name in WITHOUT_EFFECT
    ]
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
        return [f"feature gate {gate} refuses nobody: {nobody}"]
    if not settings.namespaces:
        nowhere = "--binding-admission-namespaces names no namespace; write * for all of them"
        return [f"feature gate {gate} refuses nobody: {nowhere}"]
    return []


def _sync_period_remark(text: str) -> list[str]:
    try:
        if parse_duration(text or "0") <= timedelta(0):
            return []
    except DurationError as error:
        return [f"--sync-period is ignored: {error}"]
    return ["--sync-period has no effect: what is watched does not go stale, and controllers have periods of their own"]
