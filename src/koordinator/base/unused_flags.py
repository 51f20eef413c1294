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
