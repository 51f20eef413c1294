"""What the scheduler serves as a whole: debugging only where the configuration allows it."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from koordinator.base.metrics import Metrics
from koordinator.kube.serving import HealthServer
from koordinator.scheduler.configuration import default_configuration
from koordinator.scheduler.services.routes import add_routes
from tests.scheduler.running_scheduler import RunningScheduler
from tests.scheduler.scheduler_api import SchedulerApi


@pytest.mark.parametrize("path", ["/debug/flags", "/debug/flags/"])
@pytest.mark.parametrize(("profiling", "status"), [(True, 200), (False, 404)])
def test_debugging_is_served_where_the_configuration_allows_it(path: str, profiling: bool, status: int) -> None:
    async def scenario() -> int:
        server = HealthServer(Metrics())
        add_routes(
            server, RunningScheduler(SchedulerApi()).scheduler, lambda: True, default_configuration(profiling=profiling)
        )
        await server.start()
        try:
            url = f"http://127.0.0.1:{server.bound_port}{path}"
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                return response.status
        finally:
            await server.stop()

    assert asyncio.run(scenario()) == status
