"""What the NodeMetric reports of CPU suppression: the limit of best-effort pods, since when, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from koordinator.api.resource_threshold import CFS_QUOTA_SUPPRESS_POLICY, CPUSET_SUPPRESS_POLICY
from koordinator.api.timestamps import format_time
from koordinator.base.clock import Clock
from koordinator.koordlet.enforce.executor.desired_settings import IN_FORCE, DesiredSetting
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.enforce.strategies.snapshot import Decision, Snapshot
from koordinator.node.cgroup_reader import NO_LIMIT
from koordinator.node.kernel_files import CPU_QUOTA, CPUSET, PERIOD, Value

EXTENSION: Final = "suppression"
"""The key among the extensions of a best-effort pod in the NodeMetric."""
_TIGHT: Final = 0.9
"""The share of what they may use from which on best-effort pods would use more."""
_REPORTED_SECONDS: Final = 60.0
"""For how long it is reported that they did: as often as most nodes report."""


class Held(NamedTuple):
    """What holds best-effort pods down."""

    policy: str
    cores: float
    """That all of them have together."""
    since: datetime
    why: str


class SuppressionReport:
    """Call ``observe`` with each decision of CPU suppress, before or after the executor applies it.

    Nothing is reported of a limit that best-effort pods stay below by themselves: a NodeMetric would have as many
    limits as usages.
    """

    def __init__(self, executor: Executor, clock: Clock) -> None:
        self._executor = executor
        self._clock = clock
        self._limit: DesiredSetting | None = None
        """What is desired for the limit of best-effort pods, and since when it holds."""
        self._since = clock.now()
        self._tight_at = -math.inf
        """When they last used what they may (monotonic)."""
        self.pods: Mapping[str, str] = {}
        """Those that are held down where any are: UID -> ``namespace/name``."""

    def observe(self, snapshot: Snapshot, decision: Decision) -> None:
        if decision.settings is None:
            # What was desired before stays in force.
            return
        pods = [usage for usage in snapshot.pods if usage.pod.is_best_effort]
        self.pods = {usage.pod.uid: usage.pod.pod.metadata.key for usage in pods}
        limit = _limiting(decision)
        if limit is not None and sum([usage.cpu or 0.0 for usage in pods]) >= _TIGHT * _cores(limit.value):
            self._tight_at = self._clock.monotonic()
        held = self._limit
        if limit is not None and (held is None or (held.target, held.value) != (limit.target, limit.value)):
            self._since = self._clock.now()
        self._limit = limit

    def held(self) -> Held | None:
        """None unless the kernel has what was decided and pods would use more."""
        held = self._limit
        if held is None or self._clock.monotonic() - self._tight_at > _REPORTED_SECONDS:
            return None
        found = self._executor.explain(held.target)
        if found is None or found.outcome not in IN_FORCE:
            return None
        value = found.setting.value
        policy = CPUSET_SUPPRESS_POLICY if isinstance(value, frozenset) else CFS_QUOTA_SUPPRESS_POLICY
        return Held(policy, _cores(value), self._since, held.reason)

    def extensions(self) -> Mapping[str, Mapping[str, Any]]:
        """By UID of a best-effort pod and key; empty where none are held down."""
        held = self.held()
        if held is None:
            return {}
        extension = suppression_extension(held.policy, held.cores, format_time(held.since), held.why)
        return dict.fromkeys(self.pods, extension)


def suppression_extension(policy: str, cores: float, since: str, why: str) -> dict[str, Any]:
    """The extension of a best-effort pod that is held down; ``cores`` is what all of them have together."""
    return {EXTENSION: {"policy": policy, "cpus": round(cores, 2), "since": since, "why": why}}


def _limiting(decision: Decision) -> DesiredSetting | None:
    """What is desired for the quota of all, or for the fewest CPUs; None where nothing is suppressed."""
    settings = decision.settings or ()
    if "quota" in decision.figures:
        return next(each for each in settings if each.target.file is CPU_QUOTA and each.value != NO_LIMIT)
    if "cpus" in decision.figures:
        return min((each for each in settings if each.target.file is CPUSET), key=lambda each: _cores(each.value))
    return None


def _cores(value: Value) -> float:
    """That a quota, or a set of CPUs, lets its pods use."""
    if isinstance(value, frozenset):
        return float(len(value))
    return value / PERIOD if isinstance(value, int) else 0.0
