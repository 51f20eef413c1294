"""Puts the cgroups of pods right that kubelet resizes in place.

A runtime calls the hooks for the containers of such a pod; the cgroup of the pod itself is written by the kubelet,
right before or right after that, without a call. The executor would notice it a minute later.

The kernel refuses a quota below the burst. So before a container gets less, its burst and that of its pod are lowered,
until the kubelet lists the pod as it is then: CPU burst still counts on what was granted before.
"""

from __future__ import annotations

import asyncio
from typing import Final

from koordinator.base.clock import Clock
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.koordlet.enforce.hooks.contexts import PodContext
from koordinator.node.cgroup_reader import NO_LIMIT
from koordinator.node.kernel_files import CPU_BURST, CPU_QUOTA, Target

OWNER: Final = "ResizedPods"
_PAUSES: Final = (0.1, 0.4, 1.0, 2.0, 5.0)
"""Seconds between looks after an update of a container: kubelet writes the pod's cgroup last if it gets less, and a
machine that is busy may take its time."""
_LISTED: Final = 20.0
"""Seconds after these within which the kubelet's list of pods, which is read every ten seconds, shows what it has
granted."""


class ResizedPods:
    """``run`` it beside the loops."""

    def __init__(self, executor: Executor, clock: Clock) -> None:
        self._executor = executor
        self._clock = clock
        self._folders: set[str] = set()
        self._bursts: dict[str, int] = {}
        """The highest burst by folder."""
        self._wake = asyncio.Event()

    def notice(self, pod: PodContext, container_id: str = "", quota: int = NO_LIMIT) -> None:
        """A container of the pod is about to be updated, to ``quota`` microseconds if that is a limit."""
        if not pod.cgroup:
            return
        if container_id and quota != NO_LIMIT:
            self._lower_bursts(pod.cgroup, container_id, quota)
        self._folders.add(pod.cgroup)
        self._wake.set()
        self._look()

    async def run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                for pause in (*_PAUSES, _LISTED) if self._bursts else _PAUSES:
                    await self._clock.sleep(pause)
                    self._look()
                    if self._wake.is_set():
                        # Another update: the pauses begin anew, for all of these pods.
                        break
                else:
                    self._release()
        finally:
            # Nobody would do it later.
            self._release()

    def _release(self) -> None:
        self._folders.clear()
        self._bursts.clear()
        self._submit()

    def _lower_bursts(self, pod: str, container_id: str, quota: int) -> None:
        """Those that CPU burst has raised: of the container to its new quota, of the pod by what the container loses,
        which is at least what the pod loses with it."""
        given = {target.folder: self._number(target) for target in self._executor.targets_below(CPU_BURST, pod)}
        container = next((folder for folder in given if folder != pod and container_id in folder), None)
        if container is None:
            return
        before = self._number(Target(CPU_QUOTA, container))
        if before != NO_LIMIT and before <= quota:
            return
        lost = given.get(pod, 0) if before == NO_LIMIT else before - quota
        for folder, highest in ((container, quota), (pod, max(given.get(pod, 0) - lost, 0))):
            if given.get(folder, 0) > highest:
                self._bursts[folder] = highest
        self._submit()

    def _number(self, target: Target) -> int:
        shown = self._executor.present(target)
        return shown if isinstance(shown, int) else 0

    def _submit(self) -> None:
        reason = "the kubelet is about to lower the quota, which the kernel refuses below the burst"
        self._executor.submit(
            OWNER,
            [
                DesiredSetting(OWNER, Target(CPU_BURST, folder), burst, reason, Priority.RESIZE)
                for folder, burst in self._bursts.items()
            ],
        )

    def _look(self) -> None:
        targets = {Target(CPU_BURST, folder) for folder in self._bursts}
        for folder in self._folders:
            # The kubelet raises the pod before its containers: to undo that would keep it from raising them.
            targets |= self._executor.look_again(folder, derived=False)
        # Nobody else's: the runtime waits.
        self._executor.apply(targets)
