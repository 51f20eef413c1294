"""Makes a scheduler from its configuration and the flags of its command line, for the program and for simulations
alike."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from koordinator.base.clock import Clock
from koordinator.base.metrics import Metrics
from koordinator.kube.interface import Client
from koordinator.scheduler.configuration import SchedulerConfiguration
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.handle import Events
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.features import CROSS_SCHEDULER_NOMINATION, OF_THE_VIEW
from koordinator.scheduler.metrics import SchedulerMetrics
from koordinator.scheduler.options import Options
from koordinator.scheduler.plugins.table import BUILT_IN
from koordinator.scheduler.profiles import build_profiles
from koordinator.scheduler.program import Scheduler, SchedulerOptions
from koordinator.scheduler.queue.scheduling_queue import QueueOptions


def make_scheduler(
    client: Client,
    events: Events,
    configuration: SchedulerConfiguration,
    flags: Options,
    options: SchedulerOptions,
    *,
    metrics: Metrics,
    clock: Clock,
    random: Random,
) -> Scheduler:
    """Make a scheduler. Scheduling decisions depend on ``configuration`` and ``flags`` alone; ``options`` cover
    everything else, and those of them that the configuration or the flags set are replaced. Raises
    ConfigurationError."""
    gates = frozenset(name for name in OF_THE_VIEW if flags.features.enabled(name))
    view = ClusterView(NodeColumns(), gates=gates, network_topology=flags.network_topology)
    queue = QueueOptions(
        initial_backoff=configuration.pod_initial_backoff_seconds,
        max_backoff=configuration.pod_max_backoff_seconds,
        max_in_unschedulable=flags.max_in_unschedulable,
    )
    return Scheduler(
        client,
        events,
        lambda view: build_profiles(configuration, BUILT_IN, view),
        make_pod_info,
        view,
        SchedulerMetrics(metrics),
        clock=clock,
        random=random,
        options=replace(
            options,
            queue=queue,
            foreign_nominations=flags.features.enabled(CROSS_SCHEDULER_NOMINATION),
            controller_plugins=flags.controller_plugins,
        ),
    )
