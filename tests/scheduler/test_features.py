"""Every feature gate that the original accepts either works or says why it has no effect; others are refused."""

from __future__ import annotations

import pytest

from koordinator.base.feature_gates import FeatureGates
from koordinator.scheduler.features import (
    CROSS_SCHEDULER_NOMINATION,
    DISABLE_DEFAULT_QUOTA,
    OF_THE_VIEW,
    WORKING,
    make_features,
)
from koordinator.scheduler.options import parse_options
from tests.scheduler.original_gates import ACCEPTED


def said(*values: str) -> list[str]:
    return list(parse_options([f"--feature-gates={value}" for value in values]).without_effect)


def test_the_gates_are_those_of_the_original_with_its_stages_and_defaults() -> None:
    gates = make_features()
    assert {name: _state(gates, name) for name in gates} == ACCEPTED


def _state(gates: FeatureGates, name: str) -> str:
    return f"{gates.feature(name).stage.value} {'on' if gates.enabled(name) else 'off'}"


@pytest.mark.parametrize("name", sorted(ACCEPTED))
def test_a_gate_works_or_says_why_it_has_no_effect(name: str) -> None:
    sentences = said(f"{name}=true")
    if name in WORKING:
        assert sentences == []
        return
    (sentence,) = sentences
    before, _, why = sentence.partition(f"feature gate {name} has no effect: ")
    assert before == ""
    assert len(why.split()) > 3


@pytest.mark.parametrize("name", sorted(WORKING))
def test_a_gate_that_works_is_read(name: str) -> None:
    """By the view, or for the one other one by the scheduler."""
    assert name in OF_THE_VIEW or name == CROSS_SCHEDULER_NOMINATION


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("NoSuchGate=true", "known are AllAlpha, AllBeta, CrossSchedulerNomination, "),
        ("PriorityTransfomer=true", "did you mean PriorityTransformer"),
        ("ResisePod=false", "did you mean ResizePod"),
        ("wardle:ResizePod=true", "did you mean ResizePod"),
    ],
)
def test_an_unknown_gate_is_refused_with_those_that_are_near(
    value: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        said(value)
    line = capsys.readouterr().err.splitlines()[0]
    assert (ended.value.code, value.partition("=")[0] in line, hint in line) == (2, True, True)


def test_gates_may_name_their_component_and_the_flag_may_be_repeated() -> None:
    flags = ["--feature-gates=kube:ResizePod=true", "--feature-gates=kube:SyncBarrier=true,MultiQuotaTree=true"]
    options = parse_options(flags)
    assert [options.features.enabled(name) for name in ("ResizePod", "MultiQuotaTree", "PriorityTransformer")] == [
        True,
        True,
        False,
    ]
    assert [text.split()[2] for text in options.without_effect] == ["SyncBarrier"]


def test_all_alpha_is_all_that_are_not_set_by_name() -> None:
    features = parse_options(["--feature-gates=AllAlpha=true,ResizePod=false"]).features
    assert features.enabled(DISABLE_DEFAULT_QUOTA)
    assert not features.enabled("ResizePod")
