from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat

import pytest

from benchmarks import process_usage
from koordinator.base.errors import KoordinatorError


@contextmanager
def child(code: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_process_has_used_cpu_and_memory() -> None:
    usage = process_usage.usage_of(os.getpid())
    assert usage.cpu_seconds > 0
    assert usage.peak_bytes > 2**20


def test_a_process_that_is_gone_is_an_error() -> None:
    with child("pass") as gone:
        pass
    with pytest.raises(OSError, match=str(gone.pid)):
        process_usage.usage_of(gone.pid)


def at_rest(monkeypatch: pytest.MonkeyPatch, wanted: Iterable[float], children: Iterable[float]) -> None:
    """Wait with these readings, one pair for each look, until rest or for ten windows."""
    of_process, of_children = iter(wanted), iter(children)
    monkeypatch.setattr(process_usage, "_wanted_seconds", lambda _: next(of_process))
    monkeypatch.setattr(process_usage, "_children_seconds", lambda: next(of_children))
    monkeypatch.setattr(process_usage, "_QUIET_WINDOW", 0.001)
    asyncio.run(process_usage.until_quiet(1, limit=0.01))


def test_a_process_that_never_rests_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KoordinatorError, match="did not come to rest"):
        at_rest(monkeypatch, range(100), repeat(0.0))


def test_a_process_does_not_rest_while_another_child_works_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KoordinatorError, match="did not come to rest"):
        at_rest(monkeypatch, repeat(0.0), range(100))


def test_a_process_rests_when_it_wants_no_more_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    at_rest(monkeypatch, [0.0, 1.0, 2.0, 2.0], [0.0, 1.0, 1.1, 1.2])


def test_a_process_wants_what_it_uses() -> None:
    with child("print(sum(range(5_000_000)), flush=True); input()") as process:
        assert process.stdout is not None
        process.stdout.readline()
        used = process_usage._children_seconds()
        assert used > 0
        # One is counted in ticks, the other exactly.
        assert process_usage._wanted_seconds(process.pid) > used - 0.02
