"""The scheduler's HTTP services. Imported only where it serves, since the HTTP library takes time to load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml

from koordinator.base.services import ServiceError
from koordinator.kube.debug_flags import add_debug_flags
from koordinator.kube.progress import add_progress
from koordinator.kube.services import BASE, Services
from koordinator.kube.serving import HealthServer
from koordinator.scheduler.configuration import SchedulerConfiguration, write_configuration
from koordinator.scheduler.engine.framework_hooks import ServiceProvider
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.explain import Sources, explain_node, explain_pod
from koordinator.scheduler.program import Scheduler
from koordinator.scheduler.services.node_document import node_service
from koordinator.scheduler.services.pod_resources import add_pod_resources

POD_PATH = "/debug/explain/:namespace/:name"
NODE_PATH = "/debug/explain-node/:name"


def add_explanations(services: Services, sources: Sources) -> None:
    """Add the services that explain pods and nodes from ``sources``."""

    def pod(parameters: Mapping[str, str]) -> Any:
        namespace, name = parameters["namespace"], parameters["name"]
        document = explain_pod(sources, namespace, name)
        if document is None:
            raise ServiceError(
                404,
                f"pod {namespace}/{name} is not in the queue, not on a node and was not tried lately by this instance: "
                "it does not exist, has finished, or names another scheduler in spec.schedulerName",
            )
        return document

    def node(parameters: Mapping[str, str]) -> Any:
        document = explain_node(sources, parameters["name"])
        if document is None:
            raise ServiceError(404, f"there is no node {parameters['name']}")
        return document

    services.add(POD_PATH, pod)
    services.add(NODE_PATH, node)


def add_routes(
    server: HealthServer,
    scheduler: Scheduler,
    is_leading: Callable[[], bool],
    configuration: SchedulerConfiguration,
) -> None:
    """Add the services that show the scheduler's state and explain decisions, and those for debugging."""
    make_services(scheduler, is_leading).mount(server)
    add_pod_resources(server, scheduler.pods, is_leading)
    add_progress(server, scheduler.informers, {"pods": lambda: scheduler.in_hand})
    server.add_configuration(lambda: yaml.safe_load(write_configuration(configuration)))
    if configuration.document.enable_profiling:
        add_debug_flags(server, scheduler.debug.settings.setters)


def make_services(scheduler: Scheduler, is_leading: Callable[[], bool]) -> Services:
    """All services of this instance, available while it leads."""
    services = Services(is_leading)
    add_explanations(services, scheduler.sources)
    services.add(f"{BASE}/nodes/:nodeName", node_service(scheduler.state.view))
    add_plugins(services, (engine.profile for engine in scheduler.engines.values()))
    return services


def add_plugins(services: Services, profiles: Iterable[Profile]) -> None:
    """Add the services of every plugin that offers some, of the first profile that has it."""
    seen: set[str] = set()
    for profile in profiles:
        for plugin in profile.all(ServiceProvider):
            if plugin.name not in seen:
                seen.add(plugin.name)
                for path, service in plugin.services().items():
                    services.add(f"{BASE}/plugins/{plugin.name}{path}", service)
