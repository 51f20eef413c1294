"""The controllers by name: which of them run here, and why one that was asked for does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from types import MappingProxyType
from typing import Final, Protocol

from koordinator.base.clock import Clock
from koordinator.base.metrics import Metrics
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client
from koordinator.manager.options import CONTROLLERS, Options
from koordinator.manager.slo_configuration import SLOConfigurationSource
from koordinator.manager.turns import Turns
from koordinator.model.slo_configuration.extensions import NodeSLOExtension

logger = logging.getLogger(__name__)

_NO_GATES: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True)
class ControllerContext:
    """What controllers are made of. ``client`` refuses to write once this replica leads no more."""

    client: Client
    informers: InformerSet
    events: EventBroadcaster
    options: Options
    metrics: Metrics
    clock: Clock
    random: Random
    extensions: tuple[NodeSLOExtension, ...] = ()
    """What other packages add to NodeSLOs."""

    @cached_property
    def slo_configuration(self) -> SLOConfigurationSource:
        """The SLO ConfigMap, followed once for all controllers."""
        return SLOConfigurationSource(self.informers, self.options, self.events, self.metrics, self.extensions)

    @cached_property
    def turns(self) -> Turns:
        """One for all controllers: together they keep the event loop no longer than one of them."""
        return Turns(self.clock)


class Controller(Protocol):
    """Asks for its informers when it is made; works only while this replica leads."""

    async def run(self) -> None:
        """Work until cancelled; may be called again afterwards, when this replica leads once more."""
        ...


ControllerMaker = Callable[[ControllerContext], Controller]


def make_controllers(
    context: ControllerContext, built: Mapping[str, ControllerMaker], gates: Mapping[str, str] = _NO_GATES
) -> dict[str, Controller]:
    """Those of ``built``, which has all, that ``--controllers`` switches on; the others are said once. ``gates`` names
    the feature gates that must be on as well."""
    made: dict[str, Controller] = {}
    for name in CONTROLLERS:
        gate = gates.get(name)
        if not context.options.runs_controller(name):
            logger.info("controller %s is switched off", name)
        elif gate is not None and not context.options.features.enabled(gate):
            logger.info("controller %s does not run: feature gate %s is off", name, gate)
        else:
            made[name] = built[name](context)
    return made


async def run_controllers(informers: InformerSet, controllers: Mapping[str, Controller]) -> None:
    """Run them all side by side until cancelled, from the moment at which everything that is watched is known."""
    await informers.wait_synced()
    async with asyncio.TaskGroup() as tasks:
        for name, controller in controllers.items():
            tasks.create_task(controller.run(), name=f"controller {name}")
        await asyncio.Event().wait()
