"""Flags of the original that do nothing here, and why: nobody's manifest fails over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordinator.base.unused_flags import LOG_FLAGS, LOG_SWITCHES, TO_STDERR

_NO_FILES: Final = "log lines go to stderr, never to files"
_HEADER: Final = "log lines keep their header"

UNUSED_FLAGS: Final[Mapping[str, str]] = {
    **LOG_FLAGS,
    "disable-no-deepcopy": "objects are shared and never changed, so nothing is copied",
    "stderrthreshold": TO_STDERR,
    "one-output": TO_STDERR,
    "log-dir": _NO_FILES,
    "log-file": _NO_FILES,
    "log-file-max-size": _NO_FILES,
    "log-backtrace-at": "errors that nobody foresaw carry their stack trace always",
    "add-dir-header": _HEADER,
    "skip-headers": _HEADER,
    "skip-log-headers": _HEADER,
    "legacy-stderr-threshold-behavior": TO_STDERR,
}
"""Name -> why it has no effect."""

SWITCHES: Final = LOG_SWITCHES | {
    "disable-no-deepcopy",
    "one-output",
    "add-dir-header",
    "skip-headers",
    "skip-log-headers",
    "legacy-stderr-threshold-behavior",
}
"""Those that need no value."""
