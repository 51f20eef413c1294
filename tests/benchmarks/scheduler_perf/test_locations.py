from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.scheduler_perf.locations import scheduler_perf_folder

MODULE = "k8s.io/kubernetes@v1.35.0/test/integration/scheduler_perf"


@pytest.mark.parametrize(
    ("cache", "variable", "value"),
    [("cache", "GOMODCACHE", "cache"), ("path/pkg/mod", "GOPATH", "path"), ("go/pkg/mod", "HOME", "")],
)
def test_the_module_cache_is_found_as_go_does(tmp_path: Path, cache: str, variable: str, value: str) -> None:
    (tmp_path / cache / MODULE).mkdir(parents=True)
    assert scheduler_perf_folder({variable: str(tmp_path / value)}) == tmp_path / cache / MODULE


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    assert scheduler_perf_folder({"GOMODCACHE": str(tmp_path)}) is None
