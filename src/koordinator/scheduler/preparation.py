"""What has to be done for some pods before they can be bound: volumes to claim, notes to write, binders to ask.

Such work may take minutes, so that it never stands in the way of the bindings of other pods. Most pods need none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.scheduler.binding import Binding, Finished, Outcome, Result
from koordinator.scheduler.engine.binding_points import BindOutcome, ClusterWriter, PodChanges
from koordinator.scheduler.engine.extender import PodPatcher
from koordinator.scheduler.engine.framework import PluginError
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.plugins.default_binder import DefaultBinder

logger = logging.getLogger(__name__)

T = TypeVar("T")
_AT_ONCE: Final = 1000


class Preparation:
    """``submit`` a binding; it goes on to ``ready`` (bind it by the API) or ends in ``finished``."""

    def __init__(
        self, writer: ClusterWriter, ready: Callable[[Binding], None], finished: Finished, clock: Clock
    ) -> None:
        self._writer = writer
        self._ready = ready
        self._finished = finished
        self._clock = clock
        self._arrived: asyncio.Queue[Binding] = asyncio.Queue()
        self._room = asyncio.Semaphore(_AT_ONCE)

    def is_needed(self, binding: Binding) -> bool:
        """Whether any plugin has something to do before the binding, or wants to do the binding itself."""
        profile, placement = binding.engine.profile, binding.placement
        if any(plugin.pre_binds(placement.pod, placement.node_name) for plugin in profile.pre_bind):
            return True
        return any(not isinstance(plugin, DefaultBinder) for plugin in profile.bind)

    def submit(self, binding: Binding) -> None:
        """Prepare the pod soon; its placement is assumed already."""
        self._arrived.put_nowait(binding)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                binding = await self._arrived.get()
                await self._room.acquire()
                tasks.create_task(self._prepare(binding), name=f"prepare-{binding.placement.pod.key}")

    async def _prepare(self, binding: Binding) -> None:
        placement = binding.placement
        try:
            outcome = await self._run_plugins(binding.engine.profile, placement.pod, placement.node_name)
        except Exception as error:
            # A plugin may raise anything; its pod is tried again, and says why.
            logger.warning("pod %s cannot be bound to %s: %s", placement.pod.key, placement.node_name, error)
            self._finished(binding, Outcome(Result.REFUSED, str(error)))
        else:
            if outcome is BindOutcome.BOUND:
                self._finished(binding, Outcome(Result.BOUND))
            else:
                self._ready(binding)
        finally:
            self._room.release()

    async def _run_plugins(self, profile: Profile, pod: PodInfo, node_name: str) -> BindOutcome:
        changes = PodChanges()
        for plugin in profile.pre_bind:
            if plugin.pre_binds(pod, node_name):
                work = plugin.pre_bind(pod, node_name, changes, self._writer)
                await self._limited(plugin.name, plugin.time_limit, work)
        if changes:
            await self._write(profile, pod, changes)
        for binder in profile.bind:
            outcome = await self._limited(binder.name, binder.time_limit, binder.bind(pod, node_name, self._writer))
            if outcome is not BindOutcome.SKIPPED:
                return outcome
        return BindOutcome.BY_API

    async def _write(self, profile: Profile, pod: PodInfo, changes: PodChanges) -> None:
        for patcher in profile.all(PodPatcher):
            if await patcher.apply_changes(pod, changes, self._writer):
                return
        raise PluginError("no plugin of the profile writes what others decided about the pod; DefaultPreBind would")

    async def _limited(self, name: str, seconds: float, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await within(self._clock, seconds, work)
        except TimeoutError as error:
            raise PluginError(f"plugin {name} did not finish within {seconds:.0f} s") from error
