"""Feature gates."""

from __future__ import annotations

import pytest

from koordinator.base.errors import ConfigurationError
from koordinator.base.feature_gates import Feature, FeatureGates, Stage, parse_gates
from koordinator.base.metrics import Metrics


@pytest.fixture
def gates() -> FeatureGates:
    return FeatureGates(
        {
            "Young": Feature(False, Stage.ALPHA),
            "Grown": Feature(True, Stage.BETA),
            "Done": Feature(True, Stage.GA, locked=True),
            "Old": Feature(False, Stage.DEPRECATED),
        }
    )


def test_defaults(gates: FeatureGates) -> None:
    assert [gates.enabled(name) for name in gates] == [False, True, True, False]


def test_set_from_a_text(gates: FeatureGates) -> None:
    gates.set(parse_gates("Young=true, Grown=false,"))
    assert (gates.enabled("Young"), gates.enabled("Grown")) == (True, False)


def test_all_alpha_sets_alpha_only(gates: FeatureGates) -> None:
    gates.set(parse_gates("AllAlpha=true"))
    assert (gates.enabled("Young"), gates.enabled("Old")) == (True, False)


def test_name_wins_over_all_whatever_the_order(gates: FeatureGates) -> None:
    gates.set(parse_gates("Grown=true,AllBeta=false"))
    assert gates.enabled("Grown")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Missing=true", "'Missing' is not usable: known are AllAlpha, AllBeta, Done, Grown, Old, Young"),
        ("Young", "'Young' is not usable: write NAME=true or NAME=false"),
        ("Young=yes", "--feature-gates Young: 'yes' is not usable: write true or false"),
        ("Done=false", "'Done=false' is not usable: the gate is locked to true"),
    ],
)
def test_what_is_wrong_is_named(gates: FeatureGates, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        gates.set(parse_gates(text))
    assert message in str(raised.value)


def test_refused_text_changes_nothing(gates: FeatureGates) -> None:
    with pytest.raises(ConfigurationError):
        gates.set(parse_gates("Young=true,Missing=true"))
    assert not gates.enabled("Young")


def test_deprecated_gate_is_warned_of(gates: FeatureGates, caplog: pytest.LogCaptureFixture) -> None:
    gates.set(parse_gates("Old=true"))
    assert "setting DEPRECATED feature gate Old" in caplog.text


def test_unknown_gate_in_code_is_a_key_error(gates: FeatureGates) -> None:
    with pytest.raises(KeyError):
        gates.enabled("Missing")


def test_gate_is_not_added_with_another_default(gates: FeatureGates) -> None:
    with pytest.raises(ValueError, match="Young"):
        gates.add({"Young": Feature(True, Stage.BETA)})


def test_each_gate_is_a_gauge(gates: FeatureGates) -> None:
    metrics = Metrics()
    gates.set(parse_gates("Young=true"))
    gates.export(metrics)
    value = metrics.registry.get_sample_value
    found = {
        (name, stage): value("kubernetes_feature_enabled", {"name": name, "stage": stage})
        for name, stage in (("Young", "ALPHA"), ("Grown", "BETA"), ("Done", ""), ("Old", "DEPRECATED"))
    }
    assert list(found.values()) == [1, 1, 1, 0]
