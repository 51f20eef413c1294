"""Pods that were told to leave, and who wants to know when the cluster is seen without them.

The API's answer to a deletion comes before or after the event that shows it. Whoever decides by what the view shows
has to wait for the event: until then the room is taken, and asking again would make others leave for nothing.
"""

from __future__ import annotations

from collections.abc import Callable


class Departures:
    """By uid of the pod that is to leave."""

    def __init__(self) -> None:
        self._expected: dict[str, list[Callable[[], None]]] = {}

    def expect(self, uid: str, on_seen: Callable[[], None]) -> None:
        """Call ``on_seen`` once when the view shows that the pod is leaving or gone."""
        self._expected.setdefault(uid, []).append(on_seen)

    def seen(self, uid: str) -> None:
        """The view shows it now; also said when nobody is going to see it leave."""
        for on_seen in self._expected.pop(uid, ()):
            on_seen()
