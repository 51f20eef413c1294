"""The ratio that the agent goes by: the Node's, or the last one that could be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from koordinator.api.codec import convert
from koordinator.api.node import Node
from koordinator.koordlet.enforce.policy import NormalizationRatio
from koordinator.koordlet.features import make_features
from koordinator.koordlet.pods.states import StatesInformer


def node(ratio: str | None) -> Node:
    annotations = {} if ratio is None else {"node.koordinator.sh/cpu-normalization-ratio": ratio}
    return convert({"metadata": {"name": "n", "annotations": annotations}}, Node)


def test_a_bad_ratio_leaves_the_last_one_and_none_switches_it_off(caplog: pytest.LogCaptureFixture) -> None:
    gates = make_features()
    gates.set({"CPUNormalization": True})
    states = SimpleNamespace(node=None)
    ratio = NormalizationRatio(cast("StatesInformer", states), gates)
    found = [ratio()]
    for text in ("1.5", "fast", "0", "-1", "nan", "inf", "1.2", None, "fast"):
        states.node = node(text)
        found.append(ratio())
    assert found == [None, *[1.5] * 6, 1.2, None, None]
    assert "cpu-normalization-ratio]: 'fast' must be a number above 0; the ratio stays 1.5" in caplog.text


def test_without_the_gate_nothing_is_normalised() -> None:
    states = SimpleNamespace(node=node("1.5"))
    assert NormalizationRatio(cast("StatesInformer", states), make_features())() is None
