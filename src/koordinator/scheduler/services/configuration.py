"""``/configz``: the configuration in force, defaults filled in."""

from __future__ import annotations

import yaml
from aiohttp import web

from koordinator.kube.serving import HealthServer
from koordinator.scheduler.configuration import SchedulerConfiguration, write_configuration
from koordinator.scheduler.services.routes import answer


def add_configuration(server: HealthServer, configuration: SchedulerConfiguration) -> None:
    """Serve it, in the form in which a configuration file is written."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return answer({"componentconfig": yaml.safe_load(write_configuration(configuration))})

    server.add_route("/configz", handle)
