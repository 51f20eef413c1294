"""What the pod webhook of this replica has changed at admission, summarised: one record for a period and a profile or a
Recommendation, not one for a pod, which has no UID yet and may be refused by another webhook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, NoReturn

from koordinator.api.kinds import CLUSTER_COLOCATION_PROFILES, RECOMMENDATIONS, Kind
from koordinator.api.meta import Object
from koordinator.api.modification import ADMITTED, Cause, Modification
from koordinator.base.clock import Clock
from koordinator.kube.event_series import reference_to
from koordinator.kube.events import EventRecorder

PERIOD: Final = 300.0
"""Seconds between two records of one object."""
_REASONS: Final = {CLUSTER_COLOCATION_PROFILES: "ProfileApplied", RECOMMENDATIONS: "RecommendationApplied"}
_NAMED: Final = 5
"""Namespaces that a record names."""


class AdmissionSummary:
    """Call ``admitted`` with each pod that was changed; ``run`` records until cancelled."""

    def __init__(self, events: EventRecorder, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._applied: dict[tuple[Kind[Any], str], Object] = {}
        """By kind, and namespace and name."""
        self._pods: dict[tuple[Kind[Any], str], Counter[str]] = {}
        """How many pods of which namespace."""
        self._since: datetime | None = None

    def admitted(self, kind: Kind[Any], applied: Iterable[Object], namespace: str) -> None:
        """What of one kind has changed a new pod."""
        if self._since is None:
            self._since = self._clock.now()
        for each in applied:
            key = (kind, each.metadata.key)
            self._applied[key] = each
            self._pods.setdefault(key, Counter())[namespace] += 1

    async def run(self) -> NoReturn:
        while True:
            await self._clock.sleep(PERIOD)
            self.record()

    def record(self) -> None:
        """Record what has been admitted since the last time; at the end, too."""
        for key, pods in self._pods.items():
            kind = key[0]
            named = [f"{namespace} ({count})" for namespace, count in pods.most_common(_NAMED)]
            others = f" and of {len(pods) - _NAMED} other namespaces" if len(pods) > _NAMED else ""
            note = f"applied to new pods of {', '.join(named)}{others}"
            record = Modification(
                action=ADMITTED,
                actor="pod webhook",
                cause=Cause(code=kind.name),
                since=self._since,
                count=pods.total(),
                numbers={"pods": float(pods.total()), "namespaces": float(len(pods))},
            )
            about = reference_to(kind, self._applied[key])
            self._events.event(about, "Normal", _REASONS[kind], "Admission", note, modification=record)
        self._applied, self._pods, self._since = {}, {}, None
