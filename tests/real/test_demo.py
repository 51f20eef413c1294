"""README's first command, whole: a day of the demonstration, all of whose claims hold beside the other tests.

It needs no foreign program, but most of a minute.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.running import play_demo

pytestmark = pytest.mark.real


def test_every_claim_of_the_demonstration_holds(tmp_path: Path) -> None:
    assert "Played in" in play_demo(tmp_path)
