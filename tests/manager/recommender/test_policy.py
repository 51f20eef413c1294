"""The annotation by which a recommendation is tuned: what holds for which container, and what is refused."""

from __future__ import annotations

import pytest

from koordinator.manager.recommender.policy import PolicyError, Rules, read_policy
from koordinator.model.container_sizes import Bounds


def test_an_absent_annotation_changes_nothing() -> None:
    assert read_policy(None) == Rules()


def test_a_container_goes_before_all_others_and_these_before_the_common_fields() -> None:
    rules = read_policy(
        '{"marginFraction": 0.3, "minAllowed": {"cpu": "100m", "memory": "1Gi"}, "containers": {'
        '"*": {"minAllowed": {"cpu": "200m"}}, "main": {"maxAllowed": {"cpu": "4"}, "marginFraction": 0}}}'
    )
    main, other = rules.of("main"), rules.of("other")
    assert (main.margin_fraction, other.margin_fraction) == (0, 0.3)
    assert (main.bounds_of("cpu"), other.bounds_of("cpu")) == (Bounds(200, 4000), Bounds(200))
    assert main.bounds_of("memory") == Bounds(1 << 30)


def test_a_container_can_be_left_out() -> None:
    rules = read_policy('{"containers": {"proxy": {"mode": "Off"}}}')
    assert rules.of("proxy").is_off
    assert not rules.of("main").is_off


def test_resources_can_be_left_alone() -> None:
    rules = read_policy('{"controlledResources": ["memory"], "containers": {"main": {"controlledResources": []}}}')
    assert (rules.of("other").controlled, rules.of("main").controlled) == (("memory",), ())


def test_a_recommendation_is_not_acted_on_unless_its_policy_says_so() -> None:
    absent, applied = read_policy("{}"), read_policy('{"updateMode": "Initial"}')
    automatic = read_policy('{"updateMode": "Auto", "controlledValues": "RequestsOnly", "lowConfidence": true}')

    assert (absent.is_applied, absent.resizes) == (False, False)
    assert (applied.is_applied, applied.resizes, applied.requests_only) == (True, False, False)
    assert (automatic.is_applied, automatic.resizes) == (True, True)
    assert (automatic.requests_only, automatic.low_confidence_is_used) == (True, True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"updateMode": "On"}', "updateMode: 'On': Off, Initial, Auto, InPlaceOrRecreate are allowed"),
        ('{"controlledValues": "Limits"}', "controlledValues: 'Limits': RequestsAndLimits, RequestsOnly are allowed"),
        ('{"lowConfidence": "yes"}', "lowConfidence: 'yes' is not usable"),
        ('{"margin": 1}', "margin: 1 is not usable: no such field"),
        ('{"marginFraction": -1}', "marginFraction: -1: from 0 to 100 is allowed"),
        ('{"targetPercentile": {"cpu": 90}}', "targetPercentile[cpu]: 90: from 0 to 1 is allowed"),
        ('{"targetPercentile": {"gpu": 0.9}}', "targetPercentile: 'gpu': cpu and memory are allowed"),
        ('{"maxAllowed": {"cpu": "much"}}', "maxAllowed[cpu]: 'much' is not usable"),
        ('{"maxAllowed": {"cpu": "-1"}}', "maxAllowed[cpu]: -1: 0 or more is allowed"),
        ('{"controlledResources": ["disk"]}', "controlledResources: 'disk': cpu and memory are allowed"),
        ('{"containers": {"a": {"mode": "On"}}}', "containers[a].mode: 'On': Auto or Off is allowed"),
        ('{"minAllowed": {"cpu": "2"}, "maxAllowed": {"cpu": "1"}}', "policy: maxAllowed[cpu]: 1: at least minAllowed"),
        (
            '{"minAllowed": {"cpu": "2"}, "containers": {"a": {"maxAllowed": {"cpu": "1"}}}}',
            "containers[a].maxAllowed[cpu]: 1: at least minAllowed, which is 2",
        ),
    ],
)
def test_what_cannot_be_used_is_named(text: str, problem: str) -> None:
    with pytest.raises(PolicyError) as caught:
        read_policy(text)
    message = str(caught.value)
    assert message.startswith("annotation analysis.koordinator.sh/recommendation-policy: ")
    assert problem in message
