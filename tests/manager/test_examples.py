"""The SLO ConfigMap of the documentation is one that the webhook lets in and the controllers can use."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from koordinator.api.document import Document
from koordinator.api.meta import ObjectMeta
from koordinator.manager.webhook.admission import ALLOWED, AdmissionRequest
from koordinator.manager.webhook.config_map.validating import ConfigMapValidatingHandler
from koordinator.model.slo_configuration.colocation import node_colocation_strategy
from koordinator.model.slo_configuration.configuration import SLOConfiguration

EXAMPLE = Path(__file__).parents[2] / "docs/examples/slo-controller-config.yaml"


@pytest.fixture(scope="module")
def config_map() -> Document:
    document: Document = yaml.safe_load(EXAMPLE.read_text())
    return document


def test_the_webhook_lets_it_in(config_map: Document) -> None:
    metadata = config_map["metadata"]
    handler = ConfigMapValidatingHandler(metadata["namespace"], metadata["name"], lambda: (), names_required=True)
    assert handler.handle(AdmissionRequest("CREATE", "", "v1", "configmaps", object=config_map)) is ALLOWED


def test_the_controllers_can_use_it(config_map: Document) -> None:
    configuration, problems = SLOConfiguration().updated(config_map["data"])
    assert not problems
    node = ObjectMeta(name="n1", labels={"pool": "databases"})
    strategy, _ = node_colocation_strategy(configuration.colocation.strategies, node)
    assert (strategy.cpu_reclaim_threshold_percent, strategy.memory_reclaim_threshold_percent) == (40, 70)
