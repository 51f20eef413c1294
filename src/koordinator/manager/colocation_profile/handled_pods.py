"""Which pods have been seen to lately, so that a round asks only about the others."""

from __future__ import annotations

from collections.abc import Collection

from koordinator.base.clock import Clock


class HandledPods:
    """Forgets a pod ``keep`` seconds after it was handled (0: never), one that is gone within ``clean`` seconds."""

    def __init__(self, clock: Clock, keep: float, clean: float) -> None:
        self._clock = clock
        self._keep = keep
        self._clean = clean
        self._cleaned_at = clock.monotonic()
        self._handled_at: dict[tuple[str, str], float] = {}

    def __len__(self) -> int:
        return len(self._handled_at)

    def add(self, profile_version: str, uid: str) -> None:
        """This version of a profile has been applied to the pod, or cannot be."""
        self._handled_at[profile_version, uid] = self._clock.monotonic()

    def has(self, profile_version: str, uid: str) -> bool:
        handled_at = self._handled_at.get((profile_version, uid))
        return handled_at is not None and self._is_fresh(handled_at)

    def clean(self, known: Collection[str]) -> None:
        """Drop what is not needed, if it is time; ``known`` are the uids of all pods that are there."""
        now = self._clock.monotonic()
        if now - self._cleaned_at < self._clean:
            return
        self._cleaned_at = now
        self._handled_at = {
            key: handled_at
            for key, handled_at in self._handled_at.items()
            if key[1] in known and self._is_fresh(handled_at)
        }

    def _is_fresh(self, handled_at: float) -> bool:
        return self._keep <= 0 or self._clock.monotonic() - handled_at < self._keep
