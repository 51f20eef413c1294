"""Makes a scheduler, with the profiles of its plugin instances, from its configuration and the flags of its command
line, for the program and for simulations alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from koordinator.base.clock import Clock
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.base.metrics import Metrics
from koordinator.kube.interface import Client
from koordinator.scheduler.configuration import ProfileConfiguration, SchedulerConfiguration
from koordinator.scheduler.cycle.measurement import MonitorOptions
from koordinator.scheduler.debug_output import DebugSettings
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.handle import Events
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.features import CROSS_SCHEDULER_NOMINATION, OF_THE_VIEW
from koordinator.scheduler.metrics import SchedulerMetrics
from koordinator.scheduler.options import Options
from koordinator.scheduler.plugins.table import BUILT_IN
from koordinator.scheduler.program import Scheduler, SchedulerOptions
from koordinator.scheduler.queue.scheduling_queue import QueueOptions


def build_profiles(
    configuration: SchedulerConfiguration, table: Mapping[str, type[Plugin]], view: ClusterView
) -> list[Profile]:
    """Make one instance of each plugin, of ``table`` or of another package, for each profile that names it."""
    classes = {**table, **{name: found.plugin for name, found in configuration.third_party.items()}}
    return [_build(profile, classes, view) for profile in configuration.profiles]


def _build(profile: ProfileConfiguration, table: Mapping[str, type[Plugin]], view: ClusterView) -> Profile:
    instances = {name: _make(profile, name, table[name], view) for name in profile.plugins if name in table}
    return Profile(profile.scheduler_name, instances, profile.order)


def _make(profile: ProfileConfiguration, name: str, plugin: type[Plugin], view: ClusterView) -> Plugin:
    args = profile.arguments.get(name)
    where = f"profile {profile.scheduler_name}: args of {name}"
    class_name = f"{plugin.__module__}.{plugin.__qualname__}"
    try:
        instance = plugin(args, view)
        parts = (instance, *instance.parts)
    except KoordinatorError:
        raise
    except Exception as error:
        allowed = f"{class_name} fails with them ({type(error).__name__}: {error})"
        raise ConfigurationError(where, args, allowed) from error
    for part in (type(each) for each in parts if getattr(each, "view", None) is not view):
        allowed = f"__init__ of {part.__module__}.{part.__qualname__} has to call super().__init__(args, view)"
        raise ConfigurationError(where, args, allowed)
    return instance


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
        initial_backoff=configuration.document.pod_initial_backoff_seconds,
        max_backoff=configuration.document.pod_max_backoff_seconds,
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
            monitor=MonitorOptions(flags.monitor_period, flags.scheduling_timeout),
            debug=DebugSettings(
                flags.debug_scores, flags.debug_filters, flags.debug_diagnosis, flags.debug_diagnosis_blocking
            ),
            batches=flags.debug_batches,
            check_evaluations=flags.debug_check_evaluations,
            diagnosis_queue=flags.debug_diagnosis_queue_size,
        ),
    )
