"""What koordlet hands to the audit of koord-manager beside evictions: that it held best-effort pods down, and that it
changed the CPU quota of containers.

Both go on for as long as a node is busy. They are summarised here, so that a node writes one Event when it begins, at
most one every ten minutes while it comes and goes, and one an hour while it lasts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from koordinator.api.meta import ObjectReference
from koordinator.api.modification import MOST_PODS, RESIZED, SUPPRESSED, Cause, Modification
from koordinator.base.clock import Clock
from koordinator.koordlet.enforce.executor.desired_settings import Applied
from koordinator.koordlet.enforce.strategies import cpu_burst, cpu_suppress
from koordinator.koordlet.pods.states import StatesInformer
from koordinator.koordlet.report.suppression import SuppressionReport
from koordinator.kube.events import EventRecorder
from koordinator.node.kernel_files import CPU_QUOTA

PERIOD: Final = 10.0
"""Seconds between two calls of ``ModificationReport.observe``."""
_SHORTEST: Final = 600.0
"""Seconds between two records."""
_LONGEST: Final = 3600.0
"""Seconds after which what lasts is recorded again."""
_OVER: Final = 60.0
"""What has not been seen for so many seconds is over."""
_REASONS: Final = {SUPPRESSED: "BestEffortCPUSuppressed", RESIZED: "CPUQuotaScaled"}


@dataclass(slots=True)
class _Episode:
    """What has happened since the last record."""

    since: datetime
    is_new: bool
    """Whether nothing has been recorded for a while."""
    cause: Cause
    changes: int = 0
    pods: dict[str, None] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    """The least and the most of each figure."""


class Summary:
    """What happens again and again, as few records."""

    def __init__(self, clock: Clock, record: Callable[[Modification], None], action: str, actor: str) -> None:
        self._clock = clock
        self._record = record
        self._action, self._actor = action, actor
        self._recorded_at = self._seen_at = -math.inf
        self._episode: _Episode | None = None

    def add(self, cause: Cause, pods: Iterable[str], figures: Mapping[str, float], *, changes: int) -> None:
        """It is so now; of the ``figures`` the least and the most are recorded."""
        now = self._clock.monotonic()
        episode = self._episode
        if episode is None:
            is_new = now - self._recorded_at >= _SHORTEST
            episode = self._episode = _Episode(self._clock.now(), is_new, cause)
        self._seen_at, episode.cause = now, cause
        episode.changes += changes
        episode.pods |= dict.fromkeys(pods)
        for name, value in figures.items():
            least, most = episode.ranges.get(name, (value, value))
            episode.ranges[name] = min(least, value), max(most, value)

    def record_if_due(self, *, at_end: bool = False) -> None:
        """``at_end``: whatever has happened since the last record."""
        episode, now = self._episode, self._clock.monotonic()
        if episode is None:
            return
        quiet, is_over = now - self._recorded_at, now - self._seen_at >= _OVER
        if at_end or episode.is_new or quiet >= _LONGEST or (is_over and quiet >= _SHORTEST):
            self._record(self._modification(episode))
            self._recorded_at, self._episode = now, None

    def _modification(self, episode: _Episode) -> Modification:
        numbers = {"pods": float(len(episode.pods))}
        for name, (least, most) in episode.ranges.items():
            numbers |= {f"{name}.least": round(least, 3), f"{name}.most": round(most, 3)}
        return Modification(
            action=self._action,
            actor=self._actor,
            cause=episode.cause,
            since=episode.since,
            count=max(episode.changes, 1),
            pods=sorted(episode.pods)[:MOST_PODS],
            numbers=numbers,
        )


class ModificationReport:
    """Call ``observe`` every PERIOD and at the end, and ``on_applied`` with what the executor has written."""

    def __init__(
        self,
        node_name: str,
        states: StatesInformer,
        suppression: SuppressionReport,
        events: EventRecorder,
        clock: Clock,
    ) -> None:
        self._node_name = node_name
        self._states = states
        self._suppression = suppression
        self._events = events
        self._suppressed = Summary(clock, self._write, SUPPRESSED, cpu_suppress.OWNER)
        self._resized = Summary(clock, self._write, RESIZED, cpu_burst.OWNER)
        self._limit: tuple[str, float] | None = None
        self._quotas: list[tuple[str, int, str]] = []
        """The folder of a container, its new quota in microseconds, and why."""

    def on_applied(self, applied: Applied) -> None:
        for written in applied.written:
            setting = written.setting
            if setting.target.file is not CPU_QUOTA or setting.winner.owner != cpu_burst.OWNER:
                continue
            if isinstance(setting.value, int):
                self._quotas.append((setting.target.folder, setting.value, setting.winner.reason))

    def observe(self, *, at_end: bool = False) -> None:
        self._observe_suppression()
        self._observe_quotas()
        for summary in (self._suppressed, self._resized):
            summary.record_if_due(at_end=at_end)

    def _observe_suppression(self) -> None:
        held = self._suppression.held()
        limit = None if held is None else (held.policy, held.cores)
        if held is not None:
            changes = int(limit != self._limit)
            cause = Cause(code=held.policy, text=held.why)
            self._suppressed.add(cause, self._suppression.pods.values(), {"cpus": held.cores}, changes=changes)
        self._limit = limit

    def _observe_quotas(self) -> None:
        quotas, self._quotas = self._quotas, []
        if not quotas:
            return
        of_folder = {each.cgroup: pod.pod.metadata.key for pod in self._states.pods for each in pod.containers}
        for folder, quota, why in quotas:
            # Those of pods are written with those of their containers.
            if pod := of_folder.get(folder):
                cause = Cause(code="cpuBurst", text=why)
                self._resized.add(cause, (pod,), {"quotaMicroseconds": float(quota)}, changes=1)

    def _write(self, record: Modification) -> None:
        node = ObjectReference("v1", "Node", "", self._node_name, self._node_name)
        here = replace(record, node=self._node_name)
        self._events.event(node, "Normal", _REASONS[record.action], "Enforcing", record.cause.text, modification=here)
