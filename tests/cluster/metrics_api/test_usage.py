from __future__ import annotations

from datetime import UTC, datetime

import pytest

from koordinator.cluster.metrics_api import read_report

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("when", ["", None, "yesterday", 5])
def test_a_report_of_no_known_time_is_none(when: object) -> None:
    assert read_report({"status": {"updateTime": when}}, NOW) is None


def test_an_amount_that_is_none_is_left_out() -> None:
    """kubectl would read nothing of a list that has one."""
    used = {"resources": {"cpu": "much", "memory": 1024}}
    report = read_report({"status": {"updateTime": "2026-03-01T12:00:00Z", "nodeMetric": {"nodeUsage": used}}}, NOW)
    assert report is not None
    assert report.node == {"memory": "1024"}
