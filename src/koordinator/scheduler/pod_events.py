"""Events about pods, reported in the name of the profile that handles them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from koordinator.api.kinds import PODS
from koordinator.api.pod import Pod
from koordinator.kube.event_series import reference_to
from koordinator.kube.events import EventBroadcaster


class PodEvents:
    """One recorder for each scheduler name."""

    def __init__(self, broadcaster: EventBroadcaster, scheduler_names: Iterable[str]) -> None:
        self._recorders = {name: broadcaster.recorder(name) for name in scheduler_names}

    def pod_event(
        self,
        pod: Pod,
        event_type: Literal["Normal", "Warning"],
        reason: str,
        action: str,
        note: str,
        *,
        reporter: Pod | None = None,
    ) -> None:
        """Record an event about the pod, in the name of its own profile or of that which handles ``reporter``. Returns
        at once."""
        name = (reporter or pod).spec.scheduler_name
        self._recorders[name].event(reference_to(PODS, pod), event_type, reason, action, note)
