"""Flags of kube-scheduler and of the Go original that do nothing here, and why: nobody's manifest fails over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordinator.base.unused_flags import LOG_FLAGS, LOG_SWITCHES, TO_STDERR

_NO_SECURE_PORT: Final = "only the plain port (--address, --port) is served"
_NO_MUTEXES: Final = "one thread does all the work, so that there is no contention to profile"
_METRICS: Final = "metrics are exported as they are"
_ONE_VERSION: Final = "there is only one version"
_TEXT: Final = "log lines are text"
_AT_ONCE: Final = "log lines are written at once"
_ONE_WRITER: Final = "one task writes them, in their order"
_HANDLED: Final = "a pod that is taken from the queue is handled at once"
_BARRIER: Final = "the sync barrier is not built yet"
_AUDITOR: Final = "the workload auditor is not built yet"

UNUSED_FLAGS: Final[Mapping[str, str]] = {
    **LOG_FLAGS,
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
    "contention-profiling": _NO_MUTEXES,
    "allow-metric-labels": _METRICS,
    "allow-metric-labels-manifest": _METRICS,
    "disabled-metrics": _METRICS,
    "show-hidden-metrics-for-version": _METRICS,
    "disable-http2-serving": _NO_SECURE_PORT,
    "emulated-version": _ONE_VERSION,
    "emulation-forward-compatible": _ONE_VERSION,
    "runtime-config-emulation-forward-compatible": _ONE_VERSION,
    "min-compatibility-version": _ONE_VERSION,
    "log-flush-frequency": _AT_ONCE,
    "logging-format": _TEXT,
    "log-json-info-buffer-size": _TEXT,
    "log-json-split-stream": _TEXT,
    "log-text-info-buffer-size": _AT_ONCE,
    "log-text-split-stream": TO_STDERR,
    "async-log": _AT_ONCE,
    "async-log-queue-length": _AT_ONCE,
    "debug-diagnosis-worker-count": _ONE_WRITER,
    "enable-network-topology-manager": "network topology is not built yet",
    "scheduling-drop-unhandled-timeout": _HANDLED,
    "sync-barrier-pod-namespace": _BARRIER,
    "sync-barrier-pod-name": _BARRIER,
    "sync-hard-timeout": _BARRIER,
    "enable-workload-auditor": _AUDITOR,
    "workload-auditor-metric-labels": _AUDITOR,
    "workload-auditor-victim-reschedule-duration": _AUDITOR,
    "workload-auditor-victim-deletion-duration": _AUDITOR,
    "workload-auditor-victim-deleting-retries": _AUDITOR,
    "workload-auditor-scheduling-event-interval": _AUDITOR,
}
"""Name -> why it has no effect."""

SWITCHES: Final = LOG_SWITCHES | {
    "async-log",
    "authentication-skip-lookup",
    "authentication-tolerate-lookup-failure",
    "contention-profiling",
    "disable-http2-serving",
    "emulation-forward-compatible",
    "enable-network-topology-manager",
    "enable-workload-auditor",
    "log-json-split-stream",
    "log-text-split-stream",
    "permit-address-sharing",
    "permit-port-sharing",
    "runtime-config-emulation-forward-compatible",
}
"""Those that need no value."""
