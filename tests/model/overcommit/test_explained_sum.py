"""The explained amount as a document and in words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from koordinator.api.codec import DecodeError
from koordinator.model.overcommit.explained_sum import (
    Addend,
    ExplainedAmount,
    explained,
    from_json,
    published,
    reset,
    sentence,
    to_json,
)

WHEN = datetime(2026, 1, 1, 12, tzinfo=UTC)
SUM = explained(
    "kubernetes.io/batch-cpu",
    "usage",
    WHEN,
    (Addend("capacity", 1000), Addend("safetyMargin", -350), Addend("systemUsage", 0)),
    600,
    {"reserved": 7},
)


def test_the_compact_form() -> None:
    assert to_json((SUM,)) == (
        '[{"resource":"kubernetes.io/batch-cpu","value":600,"policy":"usage","metricTime":"2026-01-01T12:00:00Z",'
        '"addends":[["capacity",1000],["safetyMargin",-350]],"cap":600,"terms":{"reserved":7}}]'
    )


@pytest.mark.parametrize(
    "amount",
    [
        SUM,
        published(SUM, (Addend("cpuNormalization", 20),)),
        reset("r", "NoNodeMetric", "why", WHEN),
        reset("r", "c", ""),
    ],
)
def test_back_and_forth(amount: ExplainedAmount) -> None:
    assert from_json(to_json((amount, amount))) == (amount, amount)


@pytest.mark.parametrize("text", ["", "{}", '[{"resource":3}]', "[}"])
def test_what_is_no_document(text: str) -> None:
    with pytest.raises(DecodeError):
        from_json(text)


def test_in_words() -> None:
    assert sentence(SUM) == (
        "kubernetes.io/batch-cpu = 600: capacity 1000 - safetyMargin 350, at least 0, at most 600 (policy usage)"
    )
    assert sentence(published(SUM, (Addend("thirdPartyAllocations", -20),))).endswith(
        "(policy usage), thirdPartyAllocations -20, published 580"
    )
    assert sentence(reset("kubernetes.io/batch-cpu", "NoNodeMetric", "the node has no NodeMetric")) == (
        "kubernetes.io/batch-cpu is not offered: the node has no NodeMetric"
    )
