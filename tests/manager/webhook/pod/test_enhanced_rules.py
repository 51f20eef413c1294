"""Labels that are required of pods by a ConfigMap."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordinator.api.document import Document
from koordinator.base.errors import ConfigurationError
from koordinator.manager.webhook.pod.enhanced_rules import EnhancedRules
from koordinator.manager.webhook.pod.validating import PodRefused, PodValidatingHandler, PodValidationSettings
from tests.manager.webhook.small_cluster import request_for

RULES: list[dict[str, Any]] = [
    {"name": "team", "requiredLabels": ["team"], "namespaceWhitelist": ["kube-system", ""]},
    {"name": "cost", "requiredLabels": ["cost-center", "app"]},
]


def data(rules: object = RULES, enable: str = "true") -> dict[str, str]:
    return {"enable": enable, "rules": json.dumps(rules)}


def refusal(
    config: dict[str, str] | None, labels: Document, namespace: str = "default", old: Document | None = None
) -> str | None:
    rules = EnhancedRules()
    rules.load(config)
    handler = PodValidatingHandler(lambda: rules.in_force, settings=PodValidationSettings(enhanced_rules=True))
    pod = {"metadata": {"name": "a", "namespace": namespace, "labels": labels}, "spec": {}}
    before = None if old is None else {"metadata": {"name": "a", "namespace": namespace, "labels": old}, "spec": {}}
    try:
        handler.handle(request_for(pod, "CREATE" if before is None else "UPDATE", before))
    except PodRefused as refused:
        return str(refused)
    return None


ALL = {"team": "a", "cost-center": "b", "app": "c"}
NO_TEAM = "required label 'team' is missing"
NO_COST = "required labels are missing: [cost-center app]"


@pytest.mark.parametrize(
    ("labels", "namespace", "wanted"),
    [
        (ALL, "default", None),
        ({"team": "", "cost-center": "", "app": ""}, "default", None),
        ({}, "default", NO_TEAM),
        ({}, "kube-system", NO_COST),
        ({"team": "a"}, "default", NO_COST),
        ({"team": "a", "app": "b"}, "default", "required label 'cost-center' is missing"),
        ({"pod.koordinator.sh/skip-enhanced-validation": "true"}, "default", None),
        ({"pod.koordinator.sh/skip-enhanced-validation": "yes"}, "default", NO_TEAM),
    ],
)
def test_the_first_broken_rule_is_named(labels: Document, namespace: str, wanted: str | None) -> None:
    assert refusal(data(), labels, namespace) == wanted


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (None, None),
        ({}, None),
        (data(enable="false"), None),
        (data(enable=" TRUE\n"), NO_TEAM),
        ({"rules": json.dumps(RULES)}, None),
        ({"enable": "true"}, None),
        ({"enable": "true", "rules": "null"}, None),
    ],
)
def test_the_switch(config: dict[str, str] | None, wanted: str | None) -> None:
    assert refusal(config, {}) == wanted


def test_rules_that_came_later_do_not_stop_updates_of_pods() -> None:
    assert refusal(data(), {"changed": "yes"}, old={}) is None


def test_an_update_cannot_drop_a_required_label() -> None:
    assert refusal(data(), {"team": "a", "app": "c"}, old=ALL) == "required label 'cost-center' is missing"


@pytest.mark.parametrize("rules", ["[", '{"name":"a"}', '[{"requiredLabels":"team"}]'])
def test_rules_that_cannot_be_read_leave_those_in_force_that_are(rules: str) -> None:
    held = EnhancedRules()
    held.load(data())
    before = held.in_force
    with pytest.raises(ConfigurationError, match=r"data\.rules: .* must be a JSON array of"):
        held.load({"enable": "true", "rules": rules})
    assert held.in_force == before


def test_a_config_map_that_is_gone_switches_the_rules_off() -> None:
    held = EnhancedRules()
    held.load(data())
    held.load(None)
    assert held.in_force == ()
