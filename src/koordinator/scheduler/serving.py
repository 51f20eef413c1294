"""What the scheduler answers over HTTP. Loaded only where it serves: the library for it takes its time to load."""

from __future__ import annotations

from collections.abc import Callable

from koordinator.kube.serving import HealthServer
from koordinator.scheduler.configuration import SchedulerConfiguration
from koordinator.scheduler.program import Scheduler
from koordinator.scheduler.services.configuration import add_configuration
from koordinator.scheduler.services.debug_flags import add_debug_flags
from koordinator.scheduler.services.explanations import add_explanations
from koordinator.scheduler.services.node_document import node_service
from koordinator.scheduler.services.pod_resources import add_pod_resources
from koordinator.scheduler.services.routes import Services


def add_routes(
    server: HealthServer,
    scheduler: Scheduler,
    is_leading: Callable[[], bool],
    configuration: SchedulerConfiguration,
) -> None:
    """The services that show what the scheduler knows and why it decided, and what helps to debug it."""
    make_services(scheduler, is_leading).mount(server)
    add_pod_resources(server, scheduler.pods, is_leading)
    add_configuration(server, configuration)
    if configuration.document.enable_profiling:
        add_debug_flags(server, scheduler.debug.settings)


def make_services(scheduler: Scheduler, is_leading: Callable[[], bool]) -> Services:
    """Everything that this instance answers while it leads."""
    services = Services(is_leading)
    add_explanations(services, scheduler.sources)
    services.add("/apis/v1/nodes/:nodeName", node_service(scheduler.state.view))
    services.add_plugins(engine.profile for engine in scheduler.engines.values())
    return services
