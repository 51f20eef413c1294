"""The ratio of a CPU model, and the amplification of resources: the worked examples of the original."""

from __future__ import annotations

import pytest

from koordinator.api.cpu_normalization import CPUModelRatios, CPUNormalizationStrategy
from koordinator.api.resource_amplification import ResourceAmplificationStrategy
from koordinator.model.overcommit.facts import CPUBasicInfo, TopologyFacts, node_facts, topology_facts
from koordinator.model.overcommit.ratios import (
    RatioError,
    amplification,
    amplification_text,
    cpu_normalization,
    is_normalization_due,
    model_ratio,
    normalized,
    read_normalization,
)
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
        (None, policy(False, XXX=FULL), BOTH_ON, 1.0),
        (None, policy(True, XXX=FULL), BOTH_ON, 1.1),
        ("true", policy(False, XXX=FULL), BOTH_ON, 1.1),
        ("false", policy(True, XXX=FULL), BOTH_ON, 1.0),
        ("false", policy(True), None, 1.0),
        ("1", policy(False, 2.5), BOTH_ON, 2.5),
        (None, policy(True, 1.005), BOTH_ON, 1.0),
        (None, policy(True, 5.0), BOTH_ON, 5.0),
        (None, policy(True, 1.5), topology("null"), 1.5),
        (None, policy(True, 1.5, XXX=FULL), topology('{"CPUModel":"XXX"}'), 1.5),
    ],
)
def test_the_ratio_of_a_node(
    label: str | None, configured: CPUNormalizationStrategy, known: TopologyFacts | None, expected: float
) -> None:
    node = node_facts(a_node(labels={} if label is None else {ENABLED: label}))

    assert cpu_normalization(node, known, configured) == expected


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
        cpu_normalization(node, known, configured)


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
    ("stored", "wanted", "due"),
    [
        ("[}", 1.1, True),
        (None, 1.1, True),
        ("1.10", 1.1, False),
        ("1.10", 1.101, False),
        ("1.10", 1.2, True),
        ("-1", 1.0, True),
    ],
)
def test_when_the_ratio_is_written_for_its_own_sake(stored: str | None, wanted: float, due: bool) -> None:
    assert is_normalization_due(stored, wanted) is due


@pytest.mark.parametrize(("ratio", "expected"), [(1.11, 1109), (1.0, 999), (0.5, 999)])
def test_batch_cpu_is_multiplied_and_rounded_up(ratio: float, expected: int) -> None:
    assert normalized(999, ratio) == expected


def amplified(enable: bool = True, **ratios: float) -> ResourceAmplificationStrategy:
    return ResourceAmplificationStrategy(enable=enable, resource_amplification_ratio=ratios)


@pytest.mark.parametrize(
    ("configured", "normalization", "expected"),
    [
        (amplified(False), 1.22, '{"cpu":1.22}'),
        (amplified(False, cpu=2.0), 1.0, None),
        (amplified(), 1.0, None),
        (amplified(cpu=1.1, memory=2.1), 1.0, '{"cpu":1.10,"memory":2.10}'),
        (amplified(cpu=1.5, memory=2.5), 1.20, '{"cpu":1.80,"memory":2.50}'),
        (amplified(memory=3.5), 1.50, '{"cpu":1.50,"memory":3.50}'),
        (amplified(storage=1.8, memory=3.5), 1.50, '{"cpu":1.50,"memory":3.50,"storage":1.80}'),
        (amplified(cpu=0.8, memory=3.5, storage=1.8), 1.50, '{"cpu":1.20,"memory":3.50,"storage":1.80}'),
        (amplified(cpu=1.0), 1.0, '{"cpu":1.00}'),
    ],
)
def test_amplification(configured: ResourceAmplificationStrategy, normalization: float, expected: str | None) -> None:
    assert amplification_text(amplification(configured, normalization)) == expected


@pytest.mark.parametrize(
    ("configured", "normalization"),
    [
        (amplified(cpu=0.5, memory=3.5), 1.5),
        (amplified(cpu=-1.0), 1.0),
        (amplified(memory=3.5, storage=0.5), 1.5),
        (amplified(memory=float("nan")), 1.0),
    ],
)
def test_why_nothing_can_be_amplified(configured: ResourceAmplificationStrategy, normalization: float) -> None:
    with pytest.raises(RatioError):
        amplification(configured, normalization)


@pytest.mark.parametrize("text", ["invalid", "0", "inf", "1_0", " 1.2"])
def test_what_is_no_ratio(text: str) -> None:
    with pytest.raises(RatioError, match="above 0"):
        read_normalization(text)
