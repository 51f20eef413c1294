"""/configz shows the configuration in force."""

from __future__ import annotations

from koordinator.scheduler.configuration import default_configuration
from koordinator.scheduler.services.routes import add_routes
from tests.scheduler.running_scheduler import RunningScheduler
from tests.scheduler.scheduler_api import SchedulerApi
from tests.scheduler.services.service_requests import send


def test_the_configuration_is_shown_with_its_defaults() -> None:
    response = send(
        lambda server: add_routes(
            server, RunningScheduler(SchedulerApi()).scheduler, lambda: True, default_configuration()
        ),
        "/configz",
    )
    shown = response.document["componentconfig"]
    assert (shown["kind"], shown["podMaxBackoffSeconds"]) == ("KubeSchedulerConfiguration", 10)
