"""What the pod webhook of this replica has changed at admission, summarised: one record for a profile and period, not
one for a pod, which has no UID yet and may be refused by another webhook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Final, NoReturn

from koordinator.api.colocation_profile import ClusterColocationProfile
from koordinator.api.kinds import CLUSTER_COLOCATION_PROFILES
from koordinator.api.modification import ADMITTED, Cause, Modification
from koordinator.base.clock import Clock
from koordinator.kube.event_series import reference_to
from koordinator.kube.events import EventRecorder

PERIOD: Final = 300.0
"""Seconds between two records of one profile."""
_NAMED: Final = 5
"""Namespaces that a record names."""


class AdmissionSummary:
    """Call ``admitted`` with each pod to which profiles were applied; ``run`` records until cancelled."""

    def __init__(self, events: EventRecorder, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._profiles: dict[str, ClusterColocationProfile] = {}
        self._pods: dict[str, Counter[str]] = {}
        """By the name of a profile: how many pods of which namespace."""
        self._since: datetime | None = None

    def admitted(self, profiles: Iterable[ClusterColocationProfile], namespace: str) -> None:
        if self._since is None:
            self._since = self._clock.now()
        for profile in profiles:
            name = profile.metadata.name
            self._profiles[name] = profile
            self._pods.setdefault(name, Counter())[namespace] += 1

    async def run(self) -> NoReturn:
        while True:
            await self._clock.sleep(PERIOD)
            self.record()

    def record(self) -> None:
        """Record what has been admitted since the last time; at the end, too."""
        for name, pods in self._pods.items():
            named = [f"{namespace} ({count})" for namespace, count in pods.most_common(_NAMED)]
            others = f" and of {len(pods) - _NAMED} other namespaces" if len(pods) > _NAMED else ""
            note = f"applied to new pods of {', '.join(named)}{others}"
            record = Modification(
                action=ADMITTED,
                actor="pod webhook",
                cause=Cause(code="ClusterColocationProfile"),
                since=self._since,
                count=pods.total(),
                numbers={"pods": float(pods.total()), "namespaces": float(len(pods))},
            )
            about = reference_to(CLUSTER_COLOCATION_PROFILES, self._profiles[name])
            self._events.event(about, "Normal", "ProfileApplied", "Admission", note, modification=record)
        self._profiles, self._pods, self._since = {}, {}, None
