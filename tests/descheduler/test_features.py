"""The feature gates of koord-descheduler."""

from __future__ import annotations

import pytest

from koordinator.descheduler.features import enabled_gates, remarks


@pytest.mark.parametrize(
    ("values", "on"),
    [
        ({}, set()),
        ({"NodeDrain": True}, {"NodeDrain"}),
        ({"AllAlpha": True}, {"NodeDrain"}),
        ({"AllBeta": True, "Other": True}, {"DisablePVCReservation"}),
    ],
)
def test_gates_that_are_on(values: dict[str, bool], on: set[str]) -> None:
    assert enabled_gates(values) == on


@pytest.mark.parametrize(
    ("gates", "plugins", "said"),
    [
        (["NodeDrain"], ["LowNodeLoad", "DefaultEvictor"], True),
        (["NodeDrain"], ["MigrationController"], False),
        ([], ["DefaultEvictor"], False),
    ],
)
def test_drains_that_nobody_would_carry_out_are_remarked_on(gates: list[str], plugins: list[str], said: bool) -> None:
    assert any("NodeDrain" in remark for remark in remarks(gates, plugins)) is said
