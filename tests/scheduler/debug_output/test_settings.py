"""Which of the debug flags make the scheduler do more."""

from __future__ import annotations

import pytest

from koordinator.scheduler.debug_output import DebugSettings


@pytest.mark.parametrize(
    ("settings", "active"),
    [
        (DebugSettings(), False),
        (DebugSettings(scores=-1), False),
        (DebugSettings(blocking=True), False),
        (DebugSettings(scores=1), True),
        (DebugSettings(filters=True), True),
        (DebugSettings(diagnosis=True), True),
    ],
)
def test_only_what_is_logged_costs(settings: DebugSettings, active: bool) -> None:
    assert settings.active is active
