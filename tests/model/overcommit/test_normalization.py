"""The ratio of a CPU model, and by how much resources are stretched: the worked examples of the original."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.cpu_normalization import CPUModelRatios, CPUNormalizationStrategy
from koordinator.api.resource_amplification import ResourceAmplificationStrategy
from koordinator.model.overcommit.node_facts import node_facts
from koordinator.model.overcommit.normalization import (
    RatioError,
    amplification_text,
    is_normalization_due,
    model_ratio,
    normalization_text,
)
from koordinator.model.overcommit.topology_facts import CPUBasicInfo, TopologyFacts, topology_facts
from tests.model.overcommit.node_objects import a_node, a_topology

BASIC_INFO = "node.koordinator.sh/cpu-basic-info"
ENABLED = "node.koordinator.sh/cpu-normalization-enabled"
FULL = CPUModelRatios(
    base_ratio=1.5, hyper_thread_enabled_ratio=1.0, turbo_enabled_ratio=1.65, hyper_thread_turbo_enabled_ratio=1.1
)


def policy(enable: bool = True, default: float | None = None, **models: CPUModelRatios) -> CPUNormalizationStrategy:
    return CPUNormalizationStrategy(enable=enable, default_ratio=default, ratio_model=models)


def topology(text: str | None) -> TopologyFacts:
    return topology_facts(a_topology(annotations={} if text is None else {BASIC_INFO: text}))


BOTH_ON = topology('{"cpuModel":"XXX","hyperThreadEnabled":true,"turboEnabled":true,"vendorID":"v"}')


@pytest.mark.parametrize(
    ("label", "configured", "known", "expected"),
    [
        (None, policy(False, XXX=FULL), BOTH_ON, "1.00"),
        (None, policy(True, XXX=FULL), BOTH_ON, "1.10"),
        ("true", policy(False, XXX=FULL), BOTH_ON, "1.10"),
        ("false", policy(True, XXX=FULL), BOTH_ON, "1.00"),
        ("false", policy(True), None, "1.00"),
        ("1", policy(False, 2.5), BOTH_ON, "2.50"),
        (None, policy(True, 1.005), BOTH_ON, "1.00"),
        (None, policy(True, 5.0), BOTH_ON, "5.00"),
        (None, policy(True, 1.5), topology("null"), "1.50"),
        (None, policy(True, 1.5, XXX=FULL), topology('{"CPUModel":"XXX"}'), "1.50"),
    ],
)
def test_the_ratio_of_a_node(
    label: str | None, configured: CPUNormalizationStrategy, known: TopologyFacts | None, expected: str
) -> None:
    node = node_facts(a_node(labels={} if label is None else {ENABLED: label}))

    assert normalization_text(node, known, configured) == expected


@pytest.mark.parametrize(
    ("label", "configured", "known", "named"),
    [
        ("{]", policy(), BOTH_ON, "true or false"),
        ("yes", policy(), BOTH_ON, "true or false"),
        (None, policy(), None, "NodeResourceTopology"),
        (None, policy(), topology(None), "missing"),
        (None, policy(), topology("{]"), "cannot be read"),
        (None, policy(XXX=CPUModelRatios(base_ratio=1.0)), BOTH_ON, "hyperThreadTurboEnabledRatio"),
        (None, policy(XXX=CPUModelRatios(hyper_thread_turbo_enabled_ratio=10)), BOTH_ON, "from 1 to 5"),
        (None, policy(XXX=CPUModelRatios(hyper_thread_turbo_enabled_ratio=0.9)), BOTH_ON, "from 1 to 5"),
        (None, policy(default=float("nan")), BOTH_ON, "from 1 to 5"),
    ],
)
def test_why_a_node_has_no_ratio(
    label: str | None, configured: CPUNormalizationStrategy, known: TopologyFacts | None, named: str
) -> None:
    node = node_facts(a_node(labels={} if label is None else {ENABLED: label}))

    with pytest.raises(RatioError, match=named):
        normalization_text(node, known, configured)


@pytest.mark.parametrize(
    ("info", "configured", "expected"),
    [
        (CPUBasicInfo(cpu_model="X", hyper_thread_enabled=True, turbo_enabled=True), policy(X=FULL), 1.1),
        (CPUBasicInfo(cpu_model="X", hyper_thread_enabled=True), policy(X=FULL), 1.0),
        (CPUBasicInfo(cpu_model="X", turbo_enabled=True), policy(X=FULL), 1.65),
        (CPUBasicInfo(cpu_model="X"), policy(X=FULL), 1.5),
        (CPUBasicInfo(cpu_model="X"), policy(default=3.5, X=FULL), 1.5),
        (CPUBasicInfo(cpu_model="X"), policy(default=2.2, X=CPUModelRatios()), 2.2),
        (CPUBasicInfo(cpu_model="X"), policy(default=2.2, Y=FULL), 2.2),
    ],
)
def test_ratios_of_models(info: CPUBasicInfo, configured: CPUNormalizationStrategy, expected: float) -> None:
    assert model_ratio(info, configured) == expected


@pytest.mark.parametrize(
    ("old", "new", "due"),
    [
        ("[}", "1.10", True),
        ("1.10", "[}", False),
        (None, None, False),
        (None, "1.10", True),
        ("1.10", None, True),
        ("1.10", "1.10", False),
        ("1.10", "1.101", False),
        ("1.10", "1.20", True),
        ("-1", "1.00", True),
    ],
)
def test_when_the_ratio_is_written_for_its_own_sake(old: str | None, new: str | None, due: bool) -> None:
    assert is_normalization_due(old, new) is due


def stretch(enable: bool = True, **ratios: float) -> ResourceAmplificationStrategy:
    return ResourceAmplificationStrategy(enable=enable, resource_amplification_ratio=ratios)


@pytest.mark.parametrize(
    ("configured", "normalization", "expected"),
    [
        (stretch(False), "1.22", '{"cpu":1.22}'),
        (stretch(False, cpu=2.0), None, None),
        (stretch(), None, None),
        (stretch(), "1.00", None),
        (stretch(cpu=1.1, memory=2.1), None, '{"cpu":1.10,"memory":2.10}'),
        (stretch(cpu=1.5, memory=2.5), "1.20", '{"cpu":1.80,"memory":2.50}'),
        (stretch(memory=3.5), "1.50", '{"cpu":1.50,"memory":3.50}'),
        (stretch(storage=1.8, memory=3.5), "1.50", '{"cpu":1.50,"memory":3.50,"storage":1.80}'),
        (stretch(cpu=0.8, memory=3.5, storage=1.8), "1.50", '{"cpu":1.20,"memory":3.50,"storage":1.80}'),
        (stretch(cpu=1.0), None, '{"cpu":1.00}'),
    ],
)
def test_stretching(configured: ResourceAmplificationStrategy, normalization: str | None, expected: str | None) -> None:
    assert amplification_text(configured, normalization) == expected


@pytest.mark.parametrize(
    ("configured", "normalization"),
    [
        (stretch(), "invalid"),
        (stretch(), "0"),
        (stretch(), "inf"),
        (stretch(), "1_0"),
        (stretch(), " 1.2"),
        (stretch(cpu=0.5, memory=3.5), "1.50"),
        (stretch(cpu=-1.0), None),
        (stretch(memory=3.5, storage=0.5), "1.50"),
        (stretch(memory=float("nan")), None),
    ],
)
def test_why_nothing_can_be_stretched(configured: ResourceAmplificationStrategy, normalization: Any) -> None:
    with pytest.raises(RatioError):
        amplification_text(configured, normalization)
