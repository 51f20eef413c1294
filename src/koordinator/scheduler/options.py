"""The command line of koord-scheduler: kube-scheduler's flags and the Go original's, where they have a counterpart.

A flag of those programs is never an error, so that existing manifests start this program unchanged; each flag without
effect is logged once at the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import koordinator
from koordinator.api.component_configuration import ClientConnection
from koordinator.base.feature_gates import FeatureGates
from koordinator.base.flags import FlagSet
from koordinator.base.listen_address import NOWHERE, ListenAddress
from koordinator.base.option_flags import OptionFlags, group, integer, seconds, switch, text, texts
from koordinator.base.unused_flags import COMPONENT_SWITCHES, UnusedFlags, component_flags
from koordinator.kube.component_options import ClientFlags, LeaderElectionFlags
from koordinator.kube.secure_options import TITLE as SECURE
from koordinator.kube.secure_options import SecureOptions
from koordinator.scheduler.configuration.document import SchedulerLeaderElection
from koordinator.scheduler.features import WORKING, make_features

_CONFIGURATION: Final = "Configuration"
_ELECTION: Final = "Leader election"
_SERVING: Final = "Serving and logging"
_DEBUGGING: Final = "Monitoring and debugging"

_NO_PROXY: Final = "no proxy stands before --secure-port"
_UNUSED: Final[Mapping[str, str]] = {
    _NO_PROXY: "requestheader-allowed-names requestheader-client-ca-file requestheader-extra-headers-prefix "
    "requestheader-group-headers requestheader-uid-headers requestheader-username-headers",
    "tokens are enough while the authority of clients cannot be read": "authentication-tolerate-lookup-failure",
    "the API is spoken in JSON": "kube-api-content-type",
    "one thread does all the work, so that there is no contention to profile": "contention-profiling",
    "there is only one version": "emulated-version emulation-forward-compatible "
    "runtime-config-emulation-forward-compatible min-compatibility-version",
    "log lines are text": "log-json-info-buffer-size log-json-split-stream",
    "log lines are written at once": "async-log async-log-queue-length",
    "one task writes them, in their order": "debug-diagnosis-worker-count",
    "a pod that is taken from the queue is handled at once": "scheduling-drop-unhandled-timeout",
    "the sync barrier is not built yet": "sync-barrier-pod-namespace sync-barrier-pod-name sync-hard-timeout",
    "the workload auditor is not built yet": "enable-workload-auditor workload-auditor-metric-labels "
    "workload-auditor-victim-reschedule-duration workload-auditor-victim-deletion-duration "
    "workload-auditor-victim-deleting-retries workload-auditor-scheduling-event-interval",
}
"""Why flags have no effect, with their names, separated by blanks."""
_SWITCHES: Final = COMPONENT_SWITCHES | {
    "async-log",
    "authentication-tolerate-lookup-failure",
    "contention-profiling",
    "emulation-forward-compatible",
    "enable-workload-auditor",
    "log-json-split-stream",
    "runtime-config-emulation-forward-compatible",
}
"""Flags that need no value."""


_GATES: Final = "\n".join(
    [
        *(f"{name}: {what}." for name, what in sorted(WORKING.items())),
        "The other gates of Kubernetes and of the original have no effect here; the log says why.",
    ]
)

_DESCRIPTION: Final = """\
Schedules pods by spec.schedulerName, in place of kube-scheduler or of the Go koord-scheduler: it reads the
same KubeSchedulerConfiguration, takes part in the same leader election, and writes the same bindings, conditions and
events.

Examples:
  koord-scheduler --write-config-to=scheduler.yaml
      Write the default configuration with everything that can be set to a file, and exit.
  koord-scheduler --config=scheduler.yaml --kubeconfig=$HOME/.kube/config
      Schedule for the profiles of scheduler.yaml, once the lease that it names is ours.
  koord-scheduler --kubeconfig=$HOME/.kube/config --leader-elect=false
      The default profile, without an election; only where no other instance runs.
  koord-scheduler --config=scheduler.yaml --write-config-to=/dev/stdout
      Print what scheduler.yaml means, with all defaults filled in, and exit.
  koord explain pod default/web --scheduler=http://localhost:10251
      Why the pod web is where it is, or why it is pending."""


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed flags."""

    config: str = text("config", "", "A KubeSchedulerConfiguration.", placeholder="file", under=_CONFIGURATION)
    write_config_to: str = text(
        "write-config-to",
        "",
        "Write the configuration with its defaults to this file and exit.",
        placeholder="file",
        under=_CONFIGURATION,
    )
    max_in_unschedulable: float = seconds(
        "pod-max-in-unschedulable-pods-duration",
        300.0,
        "Try a pod that fits nowhere again after so long, even when nothing has happened.",
        under=_CONFIGURATION,
    )
    controller_plugins: tuple[str, ...] = texts(
        "controller-plugins",
        ("*",),
        "The plugins whose controllers run beside scheduling: names, * for all others, -NAME for all but that one.",
        under=_CONFIGURATION,
    )
    network_topology: bool = switch(
        "enable-network-topology-manager",
        False,
        "Follow the ClusterNetworkTopology named default, and write its status; for gangs of profiles with "
        "CoschedulingArgs awareNetworkTopology.",
        under=_CONFIGURATION,
    )
    profiling: bool = switch(
        "profiling",
        True,
        "Serve /debug/pprof and /debug/flags; in a configuration file, enableProfiling does this instead.",
        under=_SERVING,
    )
    verbosity: int = integer("v", 2, "How much to log; from 5 on each decision.", minimum=0, under=_SERVING)
    monitor_period: float = seconds(
        "scheduler-monitor-period",
        10.0,
        "How often to look for attempts that take too long.",
        minimum=0.01,
        under=_DEBUGGING,
    )
    scheduling_timeout: float = seconds(
        "scheduling-timeout",
        30.0,
        "Log and count (scheduler_scheduling_timeout) attempts that take longer.",
        under=_DEBUGGING,
    )
    debug_scores: int = integer(
        "debug-scores",
        0,
        "Log a table of this many best nodes for each pod, with all scores.",
        minimum=0,
        short="s",
        under=_DEBUGGING,
    )
    debug_filters: bool = switch(
        "debug-filters", False, "Log every node that a filter rejects, for each pod.", short="f", under=_DEBUGGING
    )
    debug_diagnosis: bool = switch(
        "debug-diagnosis",
        False,
        "Log a JSON document for each pod that no node can take.",
        short="d",
        under=_DEBUGGING,
    )
    debug_diagnosis_blocking: bool = switch(
        "debug-diagnosis-blocking", False, "Log it at once instead of in the background.", under=_DEBUGGING
    )
    debug_batches: bool = switch(
        "debug-batches",
        True,
        "Evaluate changed nodes for many kinds of pods at once; false evaluates them for each kind by itself. "
        "Decisions are the same.",
        under=_DEBUGGING,
    )
    debug_check_evaluations: bool = switch(
        "debug-check-evaluations",
        False,
        "Evaluate all nodes again for each pod, and log differences from the cached results. Slow.",
        under=_DEBUGGING,
    )
    debug_diagnosis_queue_size: int = integer(
        "debug-diagnosis-queue-size",
        1000,
        "How many may wait to be logged; others are dropped.",
        minimum=1,
        under=_DEBUGGING,
    )
    secure: SecureOptions = group(SECURE, SecureOptions)
    kubeconfig: str = ""
    master: str = ""
    client_connection: Mapping[str, Any] = field(default_factory=dict)
    """Fields of clientConnection that override those of the configuration."""
    leader_election: Mapping[str, Any] = field(default_factory=dict)
    """Fields of leaderElection that override those of the configuration."""
    address: ListenAddress = NOWHERE
    features: FeatureGates = field(default_factory=make_features)
    without_effect: tuple[str, ...] = ()
    """A sentence for each given flag that has no effect."""


def parse_options(arguments: Sequence[str]) -> Options:
    """Parse the command line; exits after --help, --version, or with one line about an invalid flag."""
    flags = FlagSet("koord-scheduler", _DESCRIPTION, koordinator.__version__)
    groups = {title: flags.group(title) for title in (_CONFIGURATION, _ELECTION, _SERVING, SECURE, _DEBUGGING)}
    options = OptionFlags(Options, groups.__getitem__)
    client, features = ClientFlags(groups[_CONFIGURATION], ClientConnection()), make_features()
    groups[_CONFIGURATION].feature_gates(features, component="kube", remark=_GATES)
    election = LeaderElectionFlags(groups[_ELECTION], SchedulerLeaderElection(), "Schedule")
    address = groups[_SERVING].string(
        "address",
        "127.0.0.1",
        "Where to serve /healthz, /readyz, /livez, /metrics, /configz, /apis/v1 and /debug; no authentication.",
    )
    port = groups[_SERVING].integer("port", 10251, "Its port; 0 serves nothing.", minimum=0, maximum=65535)
    reasons = {name: why for why, names in _UNUSED.items() for name in names.split()}
    unused = UnusedFlags(flags, {**component_flags(), **reasons}, _SWITCHES)
    given = flags.parse_or_exit(arguments)
    return options.read(
        given,
        kubeconfig=given[client.kubeconfig],
        master=given[client.master],
        client_connection=client.overrides(given),
        leader_election=election.overrides(given),
        address=ListenAddress(given[address], given[port], f"--{port.name}"),
        features=features,
        without_effect=(*unused.remarks(given), *features.without_effect()),
    )
