"""What can be made to go wrong with what a simulated node reports."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

FAULT_ANNOTATION: Final = "simulation.koordinator.sh/fault"
"""On a node: what goes wrong there from now on, whatever the scenario says; taken away, the scenario counts again."""


class Fault(StrEnum):
    NONE = "none"
    AGENT_MISSING = "agentMissing"
    """No report, and none from before: what there was is removed."""
    AGENT_STOPPED = "agentStopped"
    """No more reports; the last one stays."""
    USAGE_ABOVE_CAPACITY = "usageAboveCapacity"
    """The node is said to use 130 % of what it has."""
    NEGATIVE_READINGS = "negativeReadings"
    """The system is said to use less than nothing."""
    FROZEN_READINGS = "frozenReadings"
    """Reports go on, all with the readings of the first one."""
    CLOCK_AHEAD = "clockAhead"
    """Reports bear a time of an hour from now."""
    CLOCK_BEHIND = "clockBehind"
    """Reports bear a time of an hour ago."""


SILENT: Final = frozenset({Fault.AGENT_MISSING, Fault.AGENT_STOPPED})
"""Those with which nothing is reported."""
ALLOWED: Final = ", ".join(Fault)
