"""The dependencies of controllers, the choice of those that run, and the counters of their writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from types import MappingProxyType
from typing import Final

from koordinator.base.clock import Clock
from koordinator.base.metrics import Metrics
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client
from koordinator.kube.reconciler import Controller, Reconcilers
from koordinator.manager.options import CONTROLLERS, Options
from koordinator.manager.slo_configuration import SLOConfigurationSource
from koordinator.model.slo_configuration.extensions import NodeSLOExtension

logger = logging.getLogger(__name__)

_NO_GATES: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True)
class ControllerContext:
    """The dependencies of controllers. ``client`` refuses to write once this replica is no longer the leader."""

    client: Client
    informers: InformerSet
    events: EventBroadcaster
    options: Options
    metrics: Metrics
    clock: Clock
    random: Random
    extensions: tuple[NodeSLOExtension, ...] = ()
    """The parts of NodeSLOs that other packages add."""

    @cached_property
    def slo_configuration(self) -> SLOConfigurationSource:
        """The SLO ConfigMap, watched once for all controllers."""
        return SLOConfigurationSource(self.informers, self.options, self.events, self.metrics, self.extensions)

    @cached_property
    def reconcilers(self) -> Reconcilers:
        """The factory of reconcilers, shared by all controllers."""
        return Reconcilers(self.clock, self.metrics, "koordinator_manager_reconcile_total")


ControllerMaker = Callable[[ControllerContext], Controller]


def make_controllers(
    context: ControllerContext, built: Mapping[str, ControllerMaker], gates: Mapping[str, str] = _NO_GATES
) -> dict[str, Controller]:
    """The controllers of ``built``, a table of all, that ``--controllers`` enables; the disabled ones are logged.
    ``gates`` maps a controller to the feature gate that must be enabled as well."""
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


class Outcomes:
    """Counts successes and failures, by operation.

    The names are the original's (pkg/slo-controller/metrics). Its counters do not end in ``_total``, which ours must:
    they are gauges here that only grow.
    """

    def __init__(self, metrics: Metrics, name: str, help_text: str) -> None:
        self._count = metrics.gauge(f"slo_controller_{name}", help_text, ("status", "reason"))

    def succeeded(self, reason: str) -> None:
        self._count.labels("succeeded", reason).inc()

    def failed(self, reason: str) -> None:
        self._count.labels("failed", reason).inc()
