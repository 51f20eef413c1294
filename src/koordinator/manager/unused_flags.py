"""Flags of the original that do nothing here, and why: nobody's manifest fails over them."""

from __future__ import annotations

from typing import Final

_STDERR: Final = "log lines go to stderr"
_NO_FILES: Final = "log lines go to stderr, never to files"
_HEADER: Final = "log lines keep their header"

UNUSED_FLAGS: Final[dict[str, str]] = {
    "disable-no-deepcopy": "objects are shared and never changed, so nothing is copied",
    "logtostderr": _STDERR,
    "alsologtostderr": _STDERR,
    "stderrthreshold": _STDERR,
    "one-output": _STDERR,
    "log-dir": _NO_FILES,
    "log-file": _NO_FILES,
    "log-file-max-size": _NO_FILES,
    "log-backtrace-at": "errors that nobody foresaw carry their stack trace always",
    "add-dir-header": _HEADER,
    "skip-headers": _HEADER,
    "skip-log-headers": _HEADER,
    "legacy-stderr-threshold-behavior": _STDERR,
    "vmodule": "-v holds for the whole program",
}
"""Name -> why it has no effect."""

SWITCHES: Final = frozenset(
    {
        "disable-no-deepcopy",
        "logtostderr",
        "alsologtostderr",
        "one-output",
        "add-dir-header",
        "skip-headers",
        "skip-log-headers",
        "legacy-stderr-threshold-behavior",
    }
)
"""Those that need no value."""
