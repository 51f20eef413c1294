"""Flags of Go programs that mean nothing to ours: they are taken, so that nobody's manifest fails over them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from koordinator.base.flag_types import Flag
from koordinator.base.flags import FlagSet, FlagValues

TO_STDERR: Final = "log lines go to stderr"
LOG_FLAGS: Final[Mapping[str, str]] = {
    "logtostderr": TO_STDERR,
    "alsologtostderr": TO_STDERR,
    "vmodule": "-v holds for the whole program",
}
"""Those of the logs of all Go programs of Kubernetes: name -> why it has no effect."""
LOG_SWITCHES: Final = frozenset({"logtostderr", "alsologtostderr"})
_NO_FILES: Final = "log lines go to stderr, never to files"
_HEADER: Final = "log lines keep their header"
KLOG_FLAGS: Final[Mapping[str, str]] = {
    **LOG_FLAGS,
    "stderrthreshold": TO_STDERR,
    "legacy-stderr-threshold-behavior": TO_STDERR,
    "one-output": TO_STDERR,
    "log-dir": _NO_FILES,
    "log-file": _NO_FILES,
    "log-file-max-size": _NO_FILES,
    "log-backtrace-at": "errors that nobody foresaw carry their stack trace always",
    "add-dir-header": _HEADER,
    "skip-headers": _HEADER,
    "skip-log-headers": _HEADER,
}
"""Those of programs that register klog's flags as they are, in the same form."""
KLOG_SWITCHES: Final = LOG_SWITCHES | {
    "one-output",
    "legacy-stderr-threshold-behavior",
    "add-dir-header",
    "skip-headers",
    "skip-log-headers",
}
_SECURE_SERVING: Final = (
    "secure-port",
    "bind-address",
    "cert-dir",
    "tls-cert-file",
    "tls-private-key-file",
    "tls-cipher-suites",
    "tls-min-version",
    "tls-sni-cert-key",
    "disable-http2-serving",
    "http2-max-streams-per-connection",
    "permit-address-sharing",
    "permit-port-sharing",
)
_METRICS: Final = "metrics are exported as they are"
_AT_ONCE: Final = "log lines are written at once"
COMPONENT_SWITCHES: Final = LOG_SWITCHES | {
    "disable-http2-serving",
    "permit-address-sharing",
    "permit-port-sharing",
    "log-text-split-stream",
}


def component_flags(no_secure_port: str) -> dict[str, str]:
    """Those of every component of Kubernetes that serves over TLS and has options for its metrics and logs;
    ``no_secure_port`` says what is served instead."""
    return {
        **LOG_FLAGS,
        **dict.fromkeys(_SECURE_SERVING, no_secure_port),
        "leader-elect-resource-lock": "leases are the only lock",
        "allow-metric-labels": _METRICS,
        "allow-metric-labels-manifest": _METRICS,
        "disabled-metrics": _METRICS,
        "show-hidden-metrics-for-version": _METRICS,
        "log-flush-frequency": _AT_ONCE,
        "log-text-info-buffer-size": _AT_ONCE,
        "log-text-split-stream": TO_STDERR,
        "logging-format": "log lines are text",
    }


class UnusedFlags:
    """They are not in the help text."""

    def __init__(self, flags: FlagSet, reasons: Mapping[str, str], switches: Collection[str]) -> None:
        """``reasons`` is name -> why it has no effect; ``switches`` are those that need no value."""
        self._flags = [
            Flag(name, "", why, lambda _, text: text, "", "", bare="true" if name in switches else None)
            for name, why in reasons.items()
        ]
        for flag in self._flags:
            flags.register(flag)

    def remarks(self, given: FlagValues) -> list[str]:
        """A sentence for each that was given, but for one that was switched off."""
        return [
            f"--{flag.name} has no effect: {flag.help_text}"
            for flag in self._flags
            if given.is_set(flag) and given[flag] not in ("0", "false", "")
        ]
