"""Whatever the manifests have API servers request is served."""

from __future__ import annotations

from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.manifests.webhooks import webhook_configurations
from tests.manager.broken_input.admission import Admission
from tests.manager.broken_input.bench import ManagerBench


def test_every_path_of_the_webhook_configurations_has_a_handler() -> None:
    entries = [entry for configuration in webhook_configurations() for entry in configuration["webhooks"]]
    requested = {entry["clientConfig"]["service"]["path"] for entry in entries}
    assert requested == set(Admission(ManagerBench()).webhooks)


def test_no_definition_requests_a_conversion() -> None:
    """The original answers each with a failure, at a path that is not served here."""
    conversions = [definition["spec"].get("conversion") for definition in custom_resource_definitions()]
    assert set(conversions) == {None}
