"""What a write to the embedded API's store costs: the SQLite store in this process, without verbs or HTTP.

Writers update objects of their own, one after the other; the rivals beside it are plain SQLite commits of the same
rows, without a sync (what the store does) and with one each (what it would cost that a power cut loses no write).
Microseconds, the best median of several turns; ``p99`` is of that turn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import uvloop

from koordinator.cluster.storage.sqlite import SqliteStorage

_TURNS: Final = 5
Figures = dict[str, float]


async def _writer(store: SqliteStorage, key: str, value: bytes, writes: int, taken: list[float]) -> None:
    stored = await store.create(key, value)
    for _ in range(writes):
        started = time.perf_counter()
        stored = await store.update(key, value, stored.revision)
        taken.append(time.perf_counter() - started)


async def _turn(folder: Path, writers: int, writes: int, value: bytes) -> Figures:
    store = SqliteStorage(folder / "cluster.db")
    taken: list[float] = []
    cpu = time.process_time()
    async with asyncio.TaskGroup() as group:
        for number in range(writers):
            group.create_task(_writer(store, f"/g/k/{number}", value, writes // writers, taken))
    cpu = time.process_time() - cpu
    await store.close()
    return {**_latency(taken), "cpu": _micro(cpu / len(taken))}


def _plain(path: Path, writes: int, value: bytes, synchronous: str) -> Figures:
    taken: list[float] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("CREATE TABLE change (revision INTEGER PRIMARY KEY, value BLOB NOT NULL)")
        for number in range(writes):
            started = time.perf_counter()
            connection.execute("BEGIN")
            connection.execute("INSERT INTO change VALUES (?, ?)", (number, value))
            connection.execute("COMMIT")
            taken.append(time.perf_counter() - started)
    return _latency(taken)


def _latency(taken: list[float]) -> Figures:
    hundredths = quantiles(taken, n=100)
    return {"p50": _micro(hundredths[49]), "p99": _micro(hundredths[98])}


def _micro(seconds: float) -> float:
    return round(seconds * 1e6, 1)


def figures(writes: int, size: int) -> dict[str, Any]:
    value = b"x" * size
    cases: dict[str, list[Figures]] = {}
    for _ in range(_TURNS):
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
            folder = Path(name)
            for writers in (1, 16):
                (folder / str(writers)).mkdir(mode=0o700)
                turn = uvloop.run(_turn(folder / str(writers), writers, writes, value))
                cases.setdefault(f"store_{writers}_writers", []).append(turn)
            cases.setdefault("sqlite_no_sync", []).append(_plain(folder / "n.db", writes, value, "NORMAL"))
            synced = _plain(folder / "f.db", max(100, writes // 20), value, "FULL")
            cases.setdefault("sqlite_sync_each", []).append(synced)
    return {name: min(turns, key=lambda turn: turn["p50"]) for name, turns in cases.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store_writes", description=__doc__)
    parser.add_argument("--writes", type=int, default=5_000)
    parser.add_argument("--size", type=int, default=2_000, help="bytes of an object (default: %(default)s)")
    options = parser.parse_args(arguments)
    report = {"benchmark": "store_writes", "unit": "microseconds", **figures(options.writes, options.size)}
    sys.stdout.write(json.dumps(report) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
