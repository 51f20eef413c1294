"""/configz shows the configuration in force."""

from __future__ import annotations

from koordinator.scheduler.configuration import default_configuration
from koordinator.scheduler.services.configuration import add_configuration
from tests.scheduler.services.asking import ask


def test_the_configuration_is_shown_with_its_defaults() -> None:
    answer = ask(lambda server: add_configuration(server, default_configuration()), "/configz")
    shown = answer.document["componentconfig"]
    assert (shown["kind"], shown["podMaxBackoffSeconds"]) == ("KubeSchedulerConfiguration", 10)
