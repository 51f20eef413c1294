"""How far the executor has come with each target, and when it has to look at it again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import inf
from typing import Final

from koordinator.koordlet.executor.wishes import Outcome, Setting
from koordinator.node.cgroup_reader import NO_LIMIT
from koordinator.node.kernel_files import CPU_QUOTA, Format, Target, Value

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
"""Seconds."""
_UNFINISHED: Final = frozenset({Outcome.NOT_WRITTEN_YET, Outcome.VANISHED})
"""Checked in every round: the kubelet lists a pod before it has created its cgroup."""
IN_FORCE: Final = frozenset({Outcome.WRITTEN, Outcome.THERE_ALREADY})


@dataclass(slots=True)
class TargetState:
    """What was wished when it was last looked at, and what came of it. Times are monotonic."""

    value: Value
    outcome: Outcome
    at: float
    detail: str = ""
    failures: int = 0
    retry_at: float = 0.0
    is_inherited: bool = False
    """Whether the file is empty, so that the value is a parent's."""

    @property
    def has_failed(self) -> bool:
        return self.failures > 0


class Progress:
    """The states of all targets with wishes."""

    def __init__(self, reassert_seconds: float) -> None:
        """After ``reassert_seconds`` a file is read again though nothing else is wished."""
        self._reassert = reassert_seconds
        self._states: dict[Target, TargetState] = {}

    def state(self, target: Target) -> TargetState | None:
        """None for what was never looked at."""
        return self._states.get(target)

    def record(self, target: Target, state: TargetState) -> None:
        """What a look at the target has shown."""
        self._states[target] = state

    def failed(self, target: Target, value: Value, outcome: Outcome, detail: str, now: float) -> bool:
        """It is tried again after a pause that doubles each time. Whether it is the first failure with the value."""
        before = self._states.get(target)
        failures = before.failures + 1 if before is not None and before.value == value else 1
        pause = min(_FIRST_PAUSE * 2 ** min(failures - 1, 10), _LONGEST_PAUSE)
        self._states[target] = TargetState(value, outcome, now, detail, failures, now + pause)
        return failures == 1

    def look_again(self, folder: str, *, derived: bool = True) -> set[Target]:
        """The targets of a cgroup are due, whatever they are known to show: these; without ``derived``, of its quotas
        only one that is lifted."""
        found = {
            target
            for target, state in self._states.items()
            if target.folder == folder and (derived or target.file is not CPU_QUOTA or state.value == NO_LIMIT)
        }
        for target in found:
            self._states[target].at = -inf
        return found

    def parent_changed(self, target: Target) -> None:
        """The target is due if it has its parent's value."""
        state = self._states.get(target)
        if state is not None and state.is_inherited:
            state.at = -inf

    def keep(self, targets: Collection[Target]) -> None:
        """Forget all others."""
        self._states = {target: state for target, state in self._states.items() if target in targets}

    def is_due(self, target: Target, value: Value, now: float) -> bool:
        """Whether the target has to be looked at, now that ``value`` is wished."""
        state = self._states.get(target)
        if state is None or state.outcome in _UNFINISHED:
            return True
        if state.has_failed and now >= state.retry_at:
            return True
        return _differs(target, state, value) or now - state.at >= self._reassert

    def due_at(self, setting: Setting) -> float:
        """When it has to be looked at again, as ``is_due`` says it; what a parent limits, at once."""
        state = self._states.get(setting.target)
        if state is None or state.outcome in _UNFINISHED or setting.limited_by:
            return -inf
        if _differs(setting.target, state, setting.value):
            return -inf
        reassert = state.at + self._reassert
        return min(reassert, state.retry_at) if state.has_failed else reassert

    def may_write(self, target: Target, value: Value, now: float) -> bool:
        """Whether to write the value to the kernel: not while the kernel has refused it a moment ago."""
        state = self._states.get(target)
        return state is None or _differs(target, state, value) or not state.has_failed or now >= state.retry_at

    def observed(self, target: Target) -> Value | None:
        """What the target showed when it was last read, if that was what was wished."""
        state = self._states.get(target)
        return None if state is None or state.has_failed or state.outcome not in IN_FORCE else state.value

    def is_absent(self, target: Target) -> bool:
        """Whether the kernel had no such file when it was last looked for."""
        state = self._states.get(target)
        return state is not None and state.outcome is Outcome.UNSUPPORTED


def _differs(target: Target, state: TargetState, value: Value) -> bool:
    if target.file.format is Format.TASKS and isinstance(value, frozenset) and isinstance(state.value, frozenset):
        return not value <= state.value
    return state.value != value
