"""The ranges of the label ``job_size``."""

from __future__ import annotations

import pytest

from koordinator.scheduler.plugins.coscheduling.metrics import job_size


@pytest.mark.parametrize(
    ("members", "size"),
    [(0, "0"), (1, "1-100"), (100, "1-100"), (101, "101-200"), (1000, "901-1000"), (1001, "1000+")],
)
def test_sizes_are_given_in_hundreds(members: int, size: str) -> None:
    assert job_size(members) == size
