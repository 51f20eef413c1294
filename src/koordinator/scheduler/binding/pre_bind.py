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
from koordinator.scheduler.binding.binder import Binding, Finished, Stage
from koordinator.scheduler.binding.requests import BOUND, Outcome, PodBinding, Result, StatusBinding
from koordinator.scheduler.engine.binding_points import BindOutcome, ClusterWriter, PodChanges, StatusPatch
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.framework import PluginError
from koordinator.scheduler.engine.framework_hooks import PodPatcher
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.reservation_points import reservation_of, stands_for_a_reservation

logger = logging.getLogger(__name__)

T = TypeVar("T")
_SEEN_SECONDS: Final = 10.0


class PreBindStage:
    """``submit`` a binding; it is passed to ``ready`` (bind it by the API) or ends in ``finished``."""

    def __init__(
        self, writer: ClusterWriter, ready: Callable[[Binding], None], finished: Finished, clock: Clock
    ) -> None:
        self._writer = writer
        self._ready = ready
        self._finished = finished
        self._clock = clock
        self._arrived: asyncio.Queue[Binding] = asyncio.Queue()

    def is_needed(self, binding: Binding) -> bool:
        """Whether any plugin has something to do before the binding, or wants to do the binding itself. Raises
        PluginError."""
        placement = binding.placement
        state, pod, node = placement.state, placement.pod, placement.node
        profile = placement.profile
        for plugin in profile.pre_bind:
            try:
                if plugin.pre_binds(state, pod, node):
                    return True
            except Exception as error:
                raise PluginError(f"plugin {plugin.name} failed in pre_binds: {_text(error)}") from error
        return stands_for_a_reservation(profile, pod) or _is_bound_by_plugin(profile, pod)

    def submit(self, binding: Binding) -> None:
        """Run PreBind for the pod soon; its placement has been assumed."""
        binding.stage = Stage.PRE_BIND
        self._arrived.put_nowait(binding)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                binding = await self._arrived.get()
                tasks.create_task(self._prepare(binding), name=f"prepare-{binding.placement.pod.key}")

    async def _prepare(self, binding: Binding) -> None:
        try:
            is_bound = await self._run_plugins(binding)
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            self.refuse(binding, "a plugin's own work was cancelled")
        except Exception as error:
            # A plugin may raise anything; its pod is retried, and the error reported on it.
            self.refuse(binding, str(error) or type(error).__name__)
        else:
            if is_bound:
                self._finished(binding, BOUND)
            else:
                self._ready(binding)

    def refuse(self, binding: Binding, why: str) -> None:
        """End the binding by the error of a plugin."""
        placement = binding.placement
        logger.warning("pod %s cannot be bound to %s: %s", placement.pod.key, placement.node_name, why)
        self._finished(binding, Outcome(Result.REFUSED, why))

    async def _run_plugins(self, binding: Binding) -> bool:
        """Whether a plugin has bound the pod; otherwise, the request is complete."""
        placement, profile, times = binding.placement, binding.engine.profile, binding.engine.times
        begun = times.begin()
        for_reservation = stands_for_a_reservation(profile, placement.pod)
        try:
            if for_reservation:
                await self._pre_bind_reservation(profile, placement)
            else:
                await self._pre_bind(profile, binding)
        except Exception:
            times.end("PreBind", begun, "Error")
            raise
        times.end("PreBind", begun)
        begun = times.begin()
        try:
            bound = await self._bind(profile, placement, for_reservation=for_reservation)
        except Exception:
            times.end("Bind", begun, "Error")
            raise
        if bound is BindOutcome.BOUND:
            times.end("Bind", begun)
            return True
        if isinstance(bound, StatusPatch):
            binding.request, binding.on_bound = StatusBinding(bound, placement.node_name), bound.on_bound
        return False

    async def _bind(
        self, profile: Profile, placement: Placement, *, for_reservation: bool
    ) -> BindOutcome | StatusPatch:
        """Whether a plugin has bound the pod, or leaves that to the binder."""
        if not for_reservation and not _is_bound_by_plugin(placement.profile, placement.pod):
            return BindOutcome.BY_API
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

    async def _pre_bind(self, profile: Profile, binding: Binding) -> None:
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
        if first is not None and not _is_bound_by_plugin(placement.profile, pod):
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


def _is_bound_by_plugin(profile: Profile, pod: PodInfo) -> bool:
    # Called for every pod: a list costs half of what a generator does.
    return bool([plugin for plugin in profile.bind if plugin.binds(pod)])


def _shows(reservation: Reservation, changes: PodChanges) -> bool:
    metadata = reservation.metadata
    return all(metadata.labels.get(key) == value for key, value in changes.labels.items()) and all(
        metadata.annotations.get(key) == value for key, value in changes.annotations.items()
    )


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def is_being_cancelled() -> bool:
    """Whether this task itself is being cancelled: False where a plugin has awaited something else that was
    cancelled."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
