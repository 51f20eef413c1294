"""An explained amount in words."""

from __future__ import annotations

from datetime import UTC, datetime

from koordinator.model.overcommit.amounts import (
    Term,
    explained,
    published,
    reset,
    sentence,
)

WHEN = datetime(2026, 1, 1, 12, tzinfo=UTC)
SUM = explained(
    "kubernetes.io/batch-cpu",
    "usage",
    WHEN,
    (Term("capacity", 1000), Term("safetyMargin", -350), Term("systemUsage", 0)),
    600,
    {"reserved": 7},
)


def test_in_words() -> None:
    assert sentence(SUM) == (
        "kubernetes.io/batch-cpu = 600: capacity 1000 - safetyMargin 350, at least 0, at most 600 (policy usage)"
    )
    assert sentence(published(SUM, (Term("thirdPartyAllocations", -20),))).endswith(
        "(policy usage), thirdPartyAllocations -20, published 580"
    )
    assert sentence(reset("kubernetes.io/batch-cpu", "NoNodeMetric", "the node has no NodeMetric")) == (
        "kubernetes.io/batch-cpu is not offered: the node has no NodeMetric"
    )
