"""Flags of the Go programs that have no effect here: they are accepted, so that existing manifests keep working."""

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
"""The logging flags of all Go programs of Kubernetes: name -> why it has no effect."""
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
    "log-backtrace-at": "unexpected errors are always logged with their stack trace",
    "add-dir-header": _HEADER,
    "skip-headers": _HEADER,
    "skip-log-headers": _HEADER,
}
"""The flags of programs that register klog's flags unchanged, in the same form."""
KLOG_SWITCHES: Final = LOG_SWITCHES | {
    "one-output",
    "legacy-stderr-threshold-behavior",
    "add-dir-header",
    "skip-headers",
    "skip-log-headers",
}
_HTTP_1: Final = "HTTP/1.1 is served"
_SECURE_SERVING: Final[Mapping[str, str]] = {
    "tls-cipher-suites": "those of OpenSSL are used",
    "tls-min-version": "TLS 1.2 is the oldest that is spoken",
    "tls-sni-cert-key": "one certificate is served, whatever name a client asks for",
    "disable-http2-serving": _HTTP_1,
    "http2-max-streams-per-connection": _HTTP_1,
    "permit-address-sharing": "an address is not shared",
    "permit-port-sharing": "a port is not shared",
}
_METRICS: Final = "metrics are exported as they are"
_AT_ONCE: Final = "log lines are written at once"
COMPONENT_SWITCHES: Final = LOG_SWITCHES | {
    "disable-http2-serving",
    "permit-address-sharing",
    "permit-port-sharing",
    "log-text-split-stream",
}


def component_flags() -> dict[str, str]:
    """Return the flags of every Kubernetes component that serves over TLS and has options for metrics and logs."""
    return {
        **LOG_FLAGS,
        **_SECURE_SERVING,
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
    """Registers flags that are accepted but hidden from the help text."""

    def __init__(self, flags: FlagSet, reasons: Mapping[str, str], switches: Collection[str]) -> None:
        """``reasons`` is name -> why it has no effect; ``switches`` are the names that need no value."""
        self._flags = [
            Flag(name, "", why, lambda _, text: text, "", "", bare="true" if name in switches else None)
            for name, why in reasons.items()
        ]
        for flag in self._flags:
            flags.register(flag)

    def remarks(self, given: FlagValues) -> list[str]:
        """Return a sentence for each flag that the command line sets, except switches that are set to false."""
        return [
            f"--{flag.name} has no effect: {flag.help_text}"
            for flag in self._flags
            if given.is_set(flag) and given[flag] not in ("0", "false", "")
        ]
