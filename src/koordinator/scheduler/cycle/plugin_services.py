"""The scheduler's services for plugins: those behind their handles (the queue, pods that exist in no API, events), and
their controllers, which run beside scheduling."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Final

from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import Clock
from koordinator.base.name_list import is_enabled
from koordinator.scheduler.engine.binding_points import ControllerWriter
from koordinator.scheduler.engine.event_listeners import OnError
from koordinator.scheduler.engine.events import ClusterEvent
from koordinator.scheduler.engine.framework_hooks import Controller, ControllerProvider
from koordinator.scheduler.engine.handle import Events
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.queue.scheduling_queue import SchedulingQueue
from koordinator.scheduler.watch.event_handlers import EventHandlers


class PluginServices:
    """Implements SchedulerServices. ``wake`` is called when there may be work.

    Plugins call these methods in the middle of decisions and of events, so changes of the cluster state are deferred.
    """

    def __init__(
        self,
        queue: SchedulingQueue,
        event_handlers: EventHandlers,
        events: Events,
        wake: Callable[[], None],
        monotonic: Callable[[], float],
        unusable_score: Callable[[str, str, int], None],
    ) -> None:
        self._queue = queue
        self._event_handlers = event_handlers
        self._wake = wake
        # See Handle.
        self.set_pseudo_pod = event_handlers.set_pseudo_pod
        self.remove_pseudo_pod = event_handlers.remove_pseudo_pod
        self.monotonic = monotonic
        self.unusable_score = unusable_score
        self.pod_event = events.pod_event
        self.object_event = events.object_event

    def activate(self, uids: Iterable[str]) -> None:
        """See Handle."""
        self._queue.activate(uids)
        self._wake()

    def announce(self, event: ClusterEvent) -> None:
        """See Handle."""
        self._event_handlers.defer(partial(self._event_handlers.announce, event))


logger = logging.getLogger(__name__)

_RETRY: Final = BackoffPolicy(initial=1.0, maximum=60.0)


def make_controllers(
    profiles: Iterable[Profile], selection: Sequence[str], writer: ControllerWriter, on_error: OnError
) -> list[tuple[str, Controller]]:
    """(plugin, controller) of every plugin that has some and that ``selection`` (``--controller-plugins``) enables.

    Only the instance of the first profile is used. A plugin that fails to make its controllers has none.
    """
    found: dict[str, ControllerProvider] = {}
    for profile in profiles:
        for provider in profile.all(ControllerProvider):
            found.setdefault(provider.name, provider)
    made: list[tuple[str, Controller]] = []
    for name, provider in found.items():
        if is_enabled(name, selection):
            try:
                made += [(name, controller) for controller in provider.controllers(writer)]
            except Exception as error:
                on_error(name, "controllers", error)
    return made


async def run_controller(plugin: str, controller: Controller, clock: Clock, random: Random, on_error: OnError) -> None:
    """Run the controller until it ends or is cancelled; one that fails is restarted after a pause."""
    backoff = Backoff(_RETRY, clock, random)
    while True:
        try:
            await controller.run()
        except Exception as error:
            on_error(plugin, f"controller {controller.name}", error)
            await clock.sleep(backoff.next())
        else:
            logger.info("controller %s of plugin %s has ended", controller.name, plugin)
            return
