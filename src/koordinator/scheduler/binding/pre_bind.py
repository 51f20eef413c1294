"""PreBind and Bind: what plugins do for a pod before its request is sent, or in its place.

Some pods need volumes to be claimed, annotations to be written or external binders to be called. That may take minutes,
so it never delays the bindings of other pods: there is no limit to how many wait, only to the requests that their
plugins have in flight (see ``ApiWriter``). Most pods need none of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import msgspec

from koordinator.api.kinds import RESERVATIONS
from koordinator.api.reservation import Reservation
from koordinator.base.clock import Clock
from koordinator.base.deadline import within
from koordinator.scheduler.binding.binding_cycle import Binding, Broke, Event, PodBinding, Prepared, StatusBinding
from koordinator.scheduler.engine.binding_points import BindOutcome, ClusterWriter, PodChanges, StatusPatch
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.framework import PluginError
from koordinator.scheduler.engine.framework_hooks import PodPatcher
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.reservation_points import reservation_of

logger = logging.getLogger(__name__)

T = TypeVar("T")
Told = Callable[[Binding, Event], None]
"""Is told how PreBind has ended."""
_SEEN_SECONDS: Final = 10.0


class PreBindStage:
    """``run`` calls the PreBind and Bind plugins for the bindings that were submitted."""

    def __init__(self, writer: ClusterWriter, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._arrived: asyncio.Queue[tuple[Binding, Told]] = asyncio.Queue()

    def submit(self, binding: Binding, told: Told) -> None:
        """Run PreBind for the pod soon; its placement has been assumed."""
        self._arrived.put_nowait((binding, told))

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                binding, told = await self._arrived.get()
                tasks.create_task(self._prepare(binding, told), name=f"prepare-{binding.placement.pod.key}")

    async def _prepare(self, binding: Binding, told: Told) -> None:
        event: Event
        try:
            event = Prepared(await self._run_plugins(binding))
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            event = plugin_failed(binding, PluginError("a plugin's own work was cancelled"))
        except Exception as error:
            # A plugin may raise anything; its pod is retried, and the error reported on it.
            event = plugin_failed(binding, error)
        told(binding, event)

    async def _run_plugins(self, binding: Binding) -> bool:
        """Whether a plugin has bound the pod; otherwise, the request is complete."""
        placement, profile, times = binding.placement, binding.engine.profile, binding.engine.times
        begun = times.begin()
        for_reservation = profile.is_reserve_pod(placement.pod)
        by_plugin = for_reservation or placement.profile.is_bound_by_plugin(placement.pod)
        try:
            if for_reservation:
                await self._pre_bind_reservation(profile, placement)
            else:
                await self._pre_bind(profile, binding, by_plugin=by_plugin)
        except Exception:
            times.end("PreBind", begun, "Error")
            raise
        times.end("PreBind", begun)
        return by_plugin and await self._bind(profile, binding, for_reservation=for_reservation)

    async def _bind(self, profile: Profile, binding: Binding, *, for_reservation: bool) -> bool:
        """Whether a plugin has bound the pod, or leaves that to the binder."""
        placement, times = binding.placement, binding.engine.times
        begun = times.begin()
        try:
            bound = await self._bound_by(profile, placement, for_reservation=for_reservation)
        except Exception:
            times.end("Bind", begun, "Error")
            raise
        if bound is BindOutcome.BOUND:
            times.end("Bind", begun)
            return True
        if isinstance(bound, StatusPatch):
            binding.request, binding.on_bound = StatusBinding(bound, placement.node_name), bound.on_bound
        return False

    async def _bound_by(
        self, profile: Profile, placement: Placement, *, for_reservation: bool
    ) -> BindOutcome | StatusPatch:
        for binder in profile.bind:
            work = binder.bind(placement.state, placement.pod, placement.node, self._writer)
            outcome = await self._limited(binder.name, binder.time_limit, work)
            if outcome is BindOutcome.BOUND or isinstance(outcome, StatusPatch):
                return outcome
            if outcome is BindOutcome.BY_API and not for_reservation:
                return outcome
        if for_reservation:
            raise PluginError("no plugin of the profile gives reservations their nodes")
        return BindOutcome.BY_API

    async def _pre_bind(self, profile: Profile, binding: Binding, *, by_plugin: bool) -> None:
        """Write everything but annotations that the Binding can carry."""
        placement, request, changes = binding.placement, binding.request, PodChanges()
        state, pod, node = placement.state, placement.pod, placement.node
        for plugin in placement.profile.pre_bind:
            if plugin.pre_binds(state, pod, node):
                work = plugin.pre_bind(state, pod, node, changes, self._writer)
                await self._limited(plugin.name, plugin.time_limit, work)
        if not changes:
            return
        first = profile.first(PodPatcher)
        if first is not None and not by_plugin:
            annotations = first.binding_annotations(pod, changes)
            if annotations is not None:
                assert isinstance(request, PodBinding), "it is a pod of the API"
                binding.request = msgspec.structs.replace(request, annotations=annotations)
                return
        await self._write(profile, "the pod", lambda patcher: patcher.apply_changes(pod, changes, self._writer))

    async def _pre_bind_reservation(self, profile: Profile, placement: Placement) -> None:
        reservation, changes, writer = reservation_of(profile, placement.pod), PodChanges(), self._writer
        for plugin in profile.reservation_pre_bind:
            work = plugin.pre_bind_reservation(placement.state, reservation, placement.node, changes, writer)
            await self._limited(plugin.name, plugin.time_limit, work)
        if changes:
            await self._write(
                profile,
                "the reservation",
                lambda patcher: patcher.apply_reservation_changes(reservation, changes, writer),
            )
            # The reservation gets its node only in the resourceVersion that this patch has made.
            key = reservation.metadata.key
            if not await writer.until(
                lambda: _shows(reservation_of(profile, placement.pod), changes),
                _SEEN_SECONDS,
                lambda: ((RESERVATIONS, key),),
            ):
                raise PluginError(f"what was written to the reservation was not seen within {_SEEN_SECONDS:.0f} s")

    async def _write(
        self, profile: Profile, what: str, apply: Callable[[PodPatcher], Coroutine[Any, Any, bool]]
    ) -> None:
        for patcher in profile.all(PodPatcher):
            if await apply(patcher):
                return
        raise PluginError(f"no plugin of the profile writes the changes of others to {what}; enable DefaultPreBind")

    async def _limited(self, name: str, seconds: float, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await within(self._clock, seconds, work)
        except TimeoutError as error:
            raise PluginError(f"plugin {name} did not finish within {seconds:.0f} s") from error


def plugin_failed(binding: Binding, error: Exception) -> Broke:
    """The end of a binding by the error of a plugin."""
    placement, why = binding.placement, str(error) or type(error).__name__
    logger.warning("pod %s cannot be bound to %s: %s", placement.pod.key, placement.node_name, why)
    return Broke(why)


def _shows(reservation: Reservation, changes: PodChanges) -> bool:
    metadata = reservation.metadata
    return all(metadata.labels.get(key) == value for key, value in changes.labels.items()) and all(
        metadata.annotations.get(key) == value for key, value in changes.annotations.items()
    )


def is_being_cancelled() -> bool:
    """Whether this task itself is being cancelled: False where a plugin has awaited something else that was
    cancelled."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
