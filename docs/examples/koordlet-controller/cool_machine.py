"""A machine that is too hot gives its best-effort pods less CPU time: an extension controller of koordlet.

``KOORDLET_THERMAL_FILE`` names the file with the temperature, in thousandths of a degree Celsius as the kernel has it.
"""

from __future__ import annotations

import os
from pathlib import Path

from koordinator.api.meta import ObjectReference
from koordinator.koordlet.enforce.controller import Controller, NodeAccess
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.strategies.snapshot import Decision
from koordinator.koordlet.observe.metric_cache.kinds import NODE_CPU_USAGE
from koordinator.node.cgroup_reader import NO_LIMIT
from koordinator.node.kernel_files import CPU_QUOTA, Target, quota_of_milli

NAME = "example.com/cool-machine"
_HOT, _COOL = 85.0, 75.0
"""Degrees Celsius: from where on best-effort pods are held down, and until where."""
_SHARE = 0.25
"""Of what the node used on the mean of the last minute, best-effort pods get so much together."""
_LEAST = 0.1
"""Cores."""


def controller() -> Controller:
    """Called once, when koordlet starts."""
    cooling = Cooling(Path(os.environ.get("KOORDLET_THERMAL_FILE", "/sys/class/thermal/thermal_zone0/temp")))
    return Controller(NAME, interval=5.0, reconcile=cooling.reconcile, reads_best_effort=True)


class Cooling:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._quota: int | None = None
        """Of best-effort pods, microseconds in each period; None while the machine is not hot."""

    def reconcile(self, node: NodeAccess) -> Decision:
        """A file that cannot be read raises: koordlet names it, leaves everything as it is, and calls again."""
        degrees = int(self._file.read_text()) / 1000
        best_effort = node.snapshot.best_effort
        if best_effort is None:
            return Decision(None, "the folder of best-effort pods is not there")
        if degrees < (_HOT if self._quota is None else _COOL):
            self._quota = None
            reason, priority = f"the machine has {degrees:g} °C", Priority.RELEASE
        else:
            if self._quota is None:
                self._quota = self._hold_down(node, degrees)
            reason, priority = f"the machine is hot: {degrees:g} °C", Priority.POLICY
        target = Target(CPU_QUOTA, best_effort.folders.root)
        value = NO_LIMIT if self._quota is None else self._quota
        # The executor merges it with what CPU suppress desires of the same file: the lower limit wins.
        return Decision((DesiredSetting(NAME, target, value, reason, priority),), reason, {"celsius": degrees})

    def _hold_down(self, node: NodeAccess, degrees: float) -> int:
        used = node.samples(NODE_CPU_USAGE, 60)
        cores = max(used.average() * _SHARE if used else 0.0, _LEAST)
        if (found := node.snapshot.node) is not None:
            regarding = ObjectReference("v1", "Node", "", found.metadata.name, found.metadata.uid)
            note = f"at {degrees:g} °C best-effort pods get {cores:.2f} cores together"
            node.event(regarding, "Warning", "MachineHot", note)
        return quota_of_milli(round(cores * 1000))
