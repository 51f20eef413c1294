"""The limits of abnormality as a colocation strategy says them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.node import Node
from koordinator.model.overcommit.policies import PLUGINS, node_policies
from koordinator.model.slo_configuration.abnormality_limits import (
    DEFAULT_LIMITS,
    AbnormalityLimits,
    abnormality_errors,
    abnormality_limits,
)
from koordinator.model.slo_configuration.admission_check import check_config_map
from koordinator.model.slo_configuration.configuration import SLOConfiguration
from koordinator.model.slo_configuration.refusal import RefusedConfigurationError


def test_nothing_said_leaves_the_defaults() -> None:
    assert abnormality_limits({"others": 1}) == DEFAULT_LIMITS
    assert abnormality_limits({"abnormalNodes": {}}) == DEFAULT_LIMITS


def test_what_is_said_counts() -> None:
    said = {"raiseAfterSeconds": 90, "toleratedPercent": 0, "enable": False}

    assert abnormality_limits({"abnormalNodes": said}) == AbnormalityLimits(
        enable=False, raise_after=timedelta(seconds=90), tolerated_percent=0
    )
    assert not abnormality_errors({"abnormalNodes": said})


UNUSABLE: list[tuple[Any, str]] = [
    ({"raiseAfterSeconds": 0}, "raiseAfterSeconds"),
    ({"frozenAfterSeconds": "1h"}, "frozenAfterSeconds"),
    ({"toleratedPercent": -1}, "toleratedPercent"),
    (
        {"clearAfter": 1},
        'extensions.abnormalNodes.clearAfter: Unsupported value: "clearAfter": supported values: "clear',
    ),
    ([], "extensions.abnormalNodes"),
]


@pytest.mark.parametrize(("said", "about"), UNUSABLE)
def test_a_configuration_that_cannot_be_used_is_reported_and_the_last_one_stays(said: Any, about: str) -> None:
    before = configured('{"enable": true, "extensions": {"abnormalNodes": {"clearAfterSeconds": 60}}}')
    text = json.dumps({"enable": True, "extensions": {"abnormalNodes": said}})

    after, problems = before.updated({"colocation-config": text})

    assert [about in problem.message for problem in problems] == [True]
    assert limits_of(after).clear_after == timedelta(seconds=60)


@pytest.mark.parametrize(("said", "about"), UNUSABLE)
def test_what_cannot_be_used_is_refused_at_the_door(said: Any, about: str) -> None:
    data = {"colocation-config": json.dumps({"enable": True, "extensions": {"abnormalNodes": said}})}

    with pytest.raises(RefusedConfigurationError, match=r"extensions\.abnormalNodes"):
        check_config_map(data, None, config_map="koordinator-system/slo", names_required=False)


def configured(text: str) -> SLOConfiguration:
    configuration, problems = SLOConfiguration().updated({"colocation-config": text})
    assert not problems
    return configuration


def limits_of(configuration: SLOConfiguration, **metadata: Any) -> AbnormalityLimits:
    return node_policies(configuration, convert({"metadata": metadata}, Node), frozenset(PLUGINS)).abnormality


def test_groups_of_nodes_and_single_nodes_may_differ() -> None:
    group = '"nodeConfigs": [{"nodeSelector": {"matchLabels": {"a": "b"}}, "extensions": {"abnormalNodes": %s}}]'
    text = '{"enable": true, "extensions": {"abnormalNodes": {"clearAfterSeconds": 60}}, %s}' % (
        group % '{"clearAfterSeconds": 30}'
    )
    configuration = configured(text)
    own = '{"extensions": {"abnormalNodes": {"clearAfterSeconds": 10}}}'

    assert limits_of(configuration).clear_after == timedelta(seconds=60)
    assert limits_of(configuration, labels={"a": "b"}).clear_after == timedelta(seconds=30)
    annotations = {"node.koordinator.sh/colocation-strategy": own}
    assert limits_of(configuration, annotations=annotations).clear_after == timedelta(seconds=10)
