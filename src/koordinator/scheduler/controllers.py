"""Which plugins' controllers run beside scheduling: those of one instance of each plugin that the flag selects."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from koordinator.base.backoff import Backoff, BackoffPolicy
from koordinator.base.clock import Clock
from koordinator.base.name_list import is_enabled
from koordinator.scheduler.engine.binding_points import ClusterWriter
from koordinator.scheduler.engine.extender import Controller, ControllerProvider
from koordinator.scheduler.engine.observers import OnError
from koordinator.scheduler.engine.profile import Profile

logger = logging.getLogger(__name__)

_RETRY: Final = BackoffPolicy(initial=1.0, maximum=60.0)


def make_controllers(
    profiles: Iterable[Profile], selection: Sequence[str], writer: ClusterWriter, on_error: OnError
) -> list[tuple[str, Controller]]:
    """(plugin, controller) of every plugin that has some and that ``selection`` (``--controller-plugins``) enables.

    The instance of the first profile speaks for the others. A plugin that fails to make its controllers has none.
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
    """Run the controller until it ends or is cancelled; one that fails is run again after a pause."""
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
