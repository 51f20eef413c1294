"""The command line of koord-scheduler: kube-scheduler's flags and the Go original's, as far as they mean something.

A flag that is known to those programs is never an error, so that existing manifests start this one unchanged; what has
no effect is said once at the start.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import koordinator
from koordinator.base.durations import DurationError, parse_duration

_DESCRIPTION: Final = """\
Places pods that ask for it by spec.schedulerName, in place of kube-scheduler or of the Go koord-scheduler: it reads the
same KubeSchedulerConfiguration, takes part in the same leader election, and writes the same bindings, conditions and
events."""

_EPILOG: Final = """\
examples:
  koord-scheduler --config scheduler.yaml --kubeconfig ~/.kube/config
      schedule for the profiles of scheduler.yaml, once the lease that it names is ours
  koord-scheduler --kubeconfig ~/.kube/config --leader-elect=false
      the default profile, without an election (only when no other instance runs)
  koord-scheduler --config scheduler.yaml --write-config-to -
      print the configuration with all defaults filled in, and exit
  curl localhost:10251/debug/explain/NAMESPACE/POD
      why that pod is where it is, or why it is pending
"""

# Flags of the originals that do nothing here. Values say why, for the warning at the start.
_NO_SECURE_PORT: Final = "only the plain port (--address, --port) is served"
_NO_EFFECT: Final[dict[str, str]] = {
    "secure-port": _NO_SECURE_PORT,
    "bind-address": _NO_SECURE_PORT,
    "cert-dir": _NO_SECURE_PORT,
    "tls-cert-file": _NO_SECURE_PORT,
    "tls-private-key-file": _NO_SECURE_PORT,
    "tls-cipher-suites": _NO_SECURE_PORT,
    "tls-min-version": _NO_SECURE_PORT,
    "tls-sni-cert-key": _NO_SECURE_PORT,
    "http2-max-streams-per-connection": _NO_SECURE_PORT,
    "permit-address-sharing": _NO_SECURE_PORT,
    "permit-port-sharing": _NO_SECURE_PORT,
    "authentication-kubeconfig": _NO_SECURE_PORT,
    "authentication-skip-lookup": _NO_SECURE_PORT,
    "authentication-token-webhook-cache-ttl": _NO_SECURE_PORT,
    "authentication-tolerate-lookup-failure": _NO_SECURE_PORT,
    "authorization-always-allow-paths": _NO_SECURE_PORT,
    "authorization-kubeconfig": _NO_SECURE_PORT,
    "authorization-webhook-cache-authorized-ttl": _NO_SECURE_PORT,
    "authorization-webhook-cache-unauthorized-ttl": _NO_SECURE_PORT,
    "client-ca-file": _NO_SECURE_PORT,
    "requestheader-allowed-names": _NO_SECURE_PORT,
    "requestheader-client-ca-file": _NO_SECURE_PORT,
    "requestheader-extra-headers-prefix": _NO_SECURE_PORT,
    "requestheader-group-headers": _NO_SECURE_PORT,
    "requestheader-username-headers": _NO_SECURE_PORT,
    "kube-api-content-type": "the API is spoken in JSON",
    "leader-elect-resource-lock": "leases are the only lock",
    "profiling": "there is no Go profile to serve",
    "contention-profiling": "there is no Go profile to serve",
    "allow-metric-labels": "metrics are exported as they are",
    "allow-metric-labels-manifest": "metrics are exported as they are",
    "disabled-metrics": "metrics are exported as they are",
    "show-hidden-metrics-for-version": "metrics are exported as they are",
    "disable-http2-serving": _NO_SECURE_PORT,
    "emulated-version": "there is one version",
    "emulation-forward-compatible": "there is one version",
    "runtime-config-emulation-forward-compatible": "there is one version",
    "min-compatibility-version": "there is one version",
    "log-flush-frequency": "log lines are written at once",
    "logging-format": "log lines are text",
    "log-json-info-buffer-size": "log lines are text",
    "log-json-split-stream": "log lines are text",
    "log-text-info-buffer-size": "log lines are written at once",
    "log-text-split-stream": "log lines go to stderr",
    "logtostderr": "log lines go to stderr",
    "alsologtostderr": "log lines go to stderr",
    "vmodule": "-v holds for the whole program",
    "async-log": "log lines are written at once",
    "async-log-queue-length": "log lines are written at once",
    "debug-scores": "scores are in /debug/explain",
    "debug-filters": "failed filters are in /debug/explain",
    "debug-diagnosis": "diagnoses are in /debug/explain",
    "debug-diagnosis-blocking": "diagnoses are in /debug/explain",
    "debug-diagnosis-queue-size": "diagnoses are in /debug/explain",
    "debug-diagnosis-worker-count": "diagnoses are in /debug/explain",
    "controller-plugins": "no plugin with a controller is built yet",
    "enable-network-topology-manager": "network topology is not built yet",
    "scheduler-monitor-period": "the monitor of slow attempts is not built yet",
    "scheduling-timeout": "the monitor of slow attempts is not built yet",
    "scheduling-drop-unhandled-timeout": "the monitor of slow attempts is not built yet",
    "sync-barrier-pod-namespace": "the sync barrier is not built yet",
    "sync-barrier-pod-name": "the sync barrier is not built yet",
    "sync-hard-timeout": "the sync barrier is not built yet",
    "enable-workload-auditor": "the workload auditor is not built yet",
    "workload-auditor-metric-labels": "the workload auditor is not built yet",
    "workload-auditor-victim-reschedule-duration": "the workload auditor is not built yet",
    "workload-auditor-victim-deletion-duration": "the workload auditor is not built yet",
    "workload-auditor-victim-deleting-retries": "the workload auditor is not built yet",
    "workload-auditor-scheduling-event-interval": "the workload auditor is not built yet",
}
_OFF_ANYWAY: Final = ("0", "false", "")


@dataclass(frozen=True, slots=True)
class Options:
    """The flags. None: not given, so that the configuration decides."""

    config: str
    write_config_to: str
    kubeconfig: str
    master: str
    leader_elect: bool | None
    lease_duration: float | None
    renew_deadline: float | None
    retry_period: float | None
    resource_name: str | None
    resource_namespace: str | None
    qps: float | None
    burst: int | None
    address: str
    port: int
    max_in_unschedulable: float
    feature_gates: str
    verbosity: int
    without_effect: tuple[str, ...]
    """One sentence for each flag that was given and does nothing."""


def parse_options(arguments: Sequence[str]) -> Options:
    """Read the command line; ends the process with a usage message where it makes no sense, as argparse does."""
    given = _parser().parse_args([_normal(argument) for argument in arguments])
    return Options(
        config=given.config,
        write_config_to=given.write_config_to,
        kubeconfig=given.kubeconfig,
        master=given.master,
        leader_elect=given.leader_elect,
        lease_duration=given.leader_elect_lease_duration,
        renew_deadline=given.leader_elect_renew_deadline,
        retry_period=given.leader_elect_retry_period,
        resource_name=given.leader_elect_resource_name,
        resource_namespace=given.leader_elect_resource_namespace,
        qps=given.kube_api_qps,
        burst=given.kube_api_burst,
        address=given.address,
        port=given.port,
        max_in_unschedulable=given.pod_max_in_unschedulable_pods_duration,
        feature_gates=",".join(given.feature_gates),
        verbosity=given.v,
        without_effect=tuple(
            f"--{name} has no effect: {why}"
            for name, why in _NO_EFFECT.items()
            if (value := getattr(given, name.replace("-", "_"))) is not None and value not in _OFF_ANYWAY
        ),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="koord-scheduler",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"koord-scheduler {koordinator.__version__}")
    _add_configuration(parser.add_argument_group("configuration"))
    _add_election(parser.add_argument_group("leader election (each flag overrides the configuration)"))
    _add_serving(parser.add_argument_group("serving and logging"))
    for name in _NO_EFFECT:
        parser.add_argument(f"--{name}", nargs="?", const="true", help=argparse.SUPPRESS)
    for letter, name in (("-s", "debug_scores"), ("-f", "debug_filters"), ("-d", "debug_diagnosis")):
        parser.add_argument(letter, dest=name, nargs="?", const="true", help=argparse.SUPPRESS)
    return parser


def _add_configuration(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--config", default="", metavar="FILE", help="a KubeSchedulerConfiguration")
    group.add_argument(
        "--write-config-to",
        default="",
        metavar="FILE",
        help="write the configuration with its defaults to FILE (- for the standard output) and exit",
    )
    group.add_argument(
        "--kubeconfig",
        default="",
        metavar="FILE",
        help="how to reach the cluster, unless the configuration says it; otherwise KUBECONFIG, ~/.kube/config or the "
        "service account of the pod that this runs in",
    )
    group.add_argument("--master", default="", metavar="URL", help="the API server, in the place of the kubeconfig's")
    group.add_argument("--kube-api-qps", type=float, metavar="N", help="requests a second (default: 50)")
    group.add_argument("--kube-api-burst", type=int, metavar="N", help="requests at once (default: 100)")
    group.add_argument(
        "--pod-max-in-unschedulable-pods-duration",
        type=_duration,
        default=300.0,
        metavar="DURATION",
        help="try a pod that fits nowhere again after so long, even when nothing has happened (default: 5m)",
    )
    group.add_argument(
        "--feature-gates", action="append", default=[], metavar="NAME=true|false,...", help="switch features on or off"
    )


def _add_election(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--leader-elect", nargs="?", const=True, type=_boolean, metavar="true|false", help="schedule only as the leader"
    )
    for name, meaning in (
        ("lease-duration", "how long the others wait for a leader that is silent (default: 15s)"),
        ("renew-deadline", "how long a leader tries to renew before it gives up (default: 10s)"),
        ("retry-period", "the time between two tries (default: 2s)"),
    ):
        group.add_argument(f"--leader-elect-{name}", type=_duration, metavar="DURATION", help=meaning)
    group.add_argument("--leader-elect-resource-name", metavar="NAME", help="the lease (default: kube-scheduler)")
    group.add_argument("--leader-elect-resource-namespace", metavar="NAMESPACE", help="its namespace (kube-system)")


def _add_serving(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--address",
        default="127.0.0.1",
        metavar="IP",
        help="where to serve /healthz, /readyz, /livez, /metrics and /debug/explain, without authentication "
        "(default: %(default)s)",
    )
    group.add_argument("--port", type=_port, default=10251, help="its port; 0 serves nothing (default: %(default)s)")
    group.add_argument(
        "-v", "--v", type=int, default=2, metavar="LEVEL", help="from 5 on, say each decision (default: %(default)s)"
    )


def _normal(argument: str) -> str:
    """Flags may be written with underscores, as in every Kubernetes program."""
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value


def _boolean(text: str) -> bool:
    if text.lower() in ("true", "t", "1"):
        return True
    if text.lower() in ("false", "f", "0"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")


def _duration(text: str) -> float:
    try:
        return parse_duration(text).total_seconds()
    except DurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _port(text: str) -> int:
    if text.isdecimal() and int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a port: from 0 (off) to 65535")
