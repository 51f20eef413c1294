"""The benchmark of the store runs and prints one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import store_writes


def test_it_reports_the_store_beside_plain_sqlite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert store_writes.main(["--writes", "64"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["unit"] == "microseconds"
    cases = ("store_1_writers", "store_16_writers", "sqlite_no_sync", "sqlite_sync_each")
    assert all(report[case]["p50"] > 0 for case in cases)
    assert list(tmp_path.iterdir()) == []
