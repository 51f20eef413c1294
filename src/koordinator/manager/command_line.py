"""The command line of koord-manager: the flags of the Go original, with its defaults but for loopback addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

import koordinator
from koordinator.api.installation import NAMESPACE
from koordinator.base.durations import DurationError, parse_duration
from koordinator.base.flag_types import FlagGroup
from koordinator.base.flags import FlagSet, FlagValues
from koordinator.base.listen_address import NOWHERE
from koordinator.base.name_list import unknown_names
from koordinator.base.option_flags import OptionFlags
from koordinator.base.unused_flags import KLOG_FLAGS, KLOG_SWITCHES, UnusedFlags
from koordinator.manager import options
from koordinator.manager.environment import read_environment
from koordinator.manager.features import BINDING_ADMISSION_WEBHOOK, make_features
from koordinator.manager.options import Options
from koordinator.model.overcommit.policies import KNOWN_PLUGINS

_NO_DEEP_COPY: Final = "disable-no-deepcopy"
_UNUSED_FLAGS: Final = {**KLOG_FLAGS, _NO_DEEP_COPY: "objects are shared and never changed, so nothing is copied"}
"""Flags of the original that do nothing here, and why: no manifest fails over them."""
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


class _Flags:
    """All flags, with the handles of those that are no single option."""

    def __init__(self) -> None:
        self.set = FlagSet("koord-manager", _DESCRIPTION, koordinator.__version__)
        self.features = make_features()
        groups = {title: self.set.group(title) for title in options.TITLES}
        self.options = OptionFlags(Options, groups.__getitem__)
        self.sync_period = groups[options.CLUSTER].string(
            "sync-period",
            "",
            "Accepted; what is watched does not go stale, so nothing has to be looked at again.",
            placeholder="duration",
        )
        self._election(groups[options.ELECTION])
        serving = groups[options.SERVING]
        self.pprof = serving.boolean("enable-pprof", True, "Serve profiles of this program under /debug/pprof.")
        self.pprof_address = serving.listen_address(
            "pprof-addr", options.PROFILE_ADDRESS, "Where to serve them. No authentication."
        )
        self.node_strategy_name = groups[options.WEBHOOK].string(
            "node-strategy-name-need-check",
            "false",
            "true has the ConfigMap webhook refuse node strategies without a name, or with one that is taken.",
        )
        self.gates = self.set.group("Feature").feature_gates(self.features)
        self.unused = UnusedFlags(self.set, _UNUSED_FLAGS, KLOG_SWITCHES | {_NO_DEEP_COPY})

    def _election(self, group: FlagGroup) -> None:
        self.election_namespace = group.string(
            "leader-election-namespace",
            NAMESPACE,
            "The namespace of the lease; empty: that of POD_NAMESPACE.",
        )
        group.string(
            "leader-elect-resource-lock",
            "leases",
            "What the lease is kept in; Kubernetes has given up the others.",
            allowed=("leases",),
        )


def parse_options(arguments: Sequence[str], variables: Mapping[str, str]) -> Options:
    """Read the command line and the environment.

    Ends the process after --help, --version, or with one line about what is wrong with a flag. Raises
    ConfigurationError for the environment, and for flags that contradict each other.
    """
    flags = _Flags()
    given = flags.set.parse_or_exit(arguments)
    environment = read_environment(variables)
    read = flags.options.read(
        given,
        profile_address=given[flags.pprof_address] if given[flags.pprof] else NOWHERE,
        leader_election_namespace=given[flags.election_namespace] or environment.namespace,
        node_strategy_name_needed=given[flags.node_strategy_name] == "true",
        features=flags.features,
        environment=environment,
    )
    return replace(read, remarks=tuple(_remarks(flags, given, read)))


def _remarks(flags: _Flags, given: FlagValues, read: Options) -> list[str]:
    remarks = flags.unused.remarks(given)
    remarks += flags.features.without_effect()
    remarks += _sync_period_remark(given[flags.sync_period])
    remarks += _binding_remarks(read)
    remarks += [f"--controllers: {text}" for text in unknown_names(read.controllers, options.CONTROLLERS)]
    remarks += [f"--noderesource-plugins: {text}" for text in unknown_names(read.node_resource_plugins, KNOWN_PLUGINS)]
    return remarks


def _binding_remarks(read: Options) -> list[str]:
    settings, gate = read.binding_admission, BINDING_ADMISSION_WEBHOOK
    if not read.features.enabled(gate):
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
