"""Puts the cgroups of pods right that kubelet resizes in place.

A runtime calls the hooks for the containers of such a pod; the cgroup of the pod itself is written by the kubelet,
right before or right after that, without a call. The executor would notice it a minute later.
"""

from __future__ import annotations

import asyncio
from typing import Final

from koordinator.base.clock import Clock
from koordinator.koordlet.executor.executor import Executor
from koordinator.koordlet.hooks.contexts import PodContext

_PAUSES: Final = (0.1, 0.4, 1.0, 2.0, 5.0)
"""Seconds between looks after an update of a container: kubelet writes the pod's cgroup last if it gets less, and a
machine that is busy may take its time."""


class ResizedPods:
    """``run`` it beside the loops."""

    def __init__(self, executor: Executor, clock: Clock) -> None:
        self._executor = executor
        self._clock = clock
        self._folders: set[str] = set()
        self._wake = asyncio.Event()

    def notice(self, pod: PodContext) -> None:
        """A container of the pod is about to be updated."""
        if not pod.cgroup:
            return
        self._folders.add(pod.cgroup)
        self._wake.set()
        self._look()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            for pause in _PAUSES:
                await self._clock.sleep(pause)
                self._look()
                if self._wake.is_set():
                    # Another update: the pauses begin anew, for all of these pods.
                    break
            else:
                self._folders.clear()

    def _look(self) -> None:
        for folder in self._folders:
            # The kubelet raises the pod before its containers: to undo that would keep it from raising them.
            self._executor.look_again(folder, derived=False)
        self._executor.apply()
