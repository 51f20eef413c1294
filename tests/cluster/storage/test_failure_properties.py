"""The store under failures at every point: each commit is there as a whole or not at all, and everybody sees the same.

A script of writes and faults is played. What the writers were told is checked against what the store shows, what a
watcher saw, and what a restart finds.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.cluster.storage.interface import Change, OutcomeUnknown, StorageError, WriteFailed
from koordinator.cluster.storage.sqlite import SqliteStorage
from koordinator.cluster.storage.watch_cache import HistoryLimits
from tests.cluster.storage.faulty import FULL, IO_ERROR, Disk
from tests.examples import examples

LIMITS = HistoryLimits(changes=10_000)


@dataclass(frozen=True)
class Injected:
    statement: str
    code: int
    executed: bool
    skip: int
    refuses: bool
    """The database cannot be opened anew until the next step."""


faults = st.builds(
    Injected,
    st.sampled_from(("BEGIN", "INSERT", "DELETE", "COMMIT", "COMMIT", "ROLLBACK", "PRAGMA", "SELECT")),
    st.sampled_from((FULL, IO_ERROR)),
    st.booleans(),
    st.integers(0, 2),
    st.booleans(),
)
steps = st.one_of(st.integers(1, 5), st.lists(faults, min_size=1, max_size=3), st.just("try again"))


class Cluster:
    def __init__(self, path: Path) -> None:
        self.path, self.disk = path, Disk()
        self.store = SqliteStorage(path, LIMITS, connect=self.disk.connect)
        self.watch = self.store.watch("/g/k/", after=0)
        self.seen: list[Change] = []
        self.stored: dict[str, int] = {}
        self.refused: set[str] = set()
        self.unknown: set[str] = set()
        self.batches: list[set[str]] = []
        self.counter = 0

    async def write(self, count: int) -> None:
        """As many creations as one commit; what each was told."""
        keys = [f"/g/k/{self.counter + number:04}" for number in range(count)]
        self.counter += count
        self.batches.append(set(keys))
        results = await asyncio.gather(*(self.store.create(key, key.encode()) for key in keys), return_exceptions=True)
        for key, result in zip(keys, results, strict=True):
            match result:
                case OutcomeUnknown():
                    self.unknown.add(key)
                case WriteFailed():
                    self.refused.add(key)
                case BaseException():
                    raise result
                case _:
                    self.stored[key] = result.revision

    async def look(self) -> None:
        self.watch.wake()
        while changes := await self.watch.next():
            self.seen += changes
            self.watch.wake()

    async def check(self, store: SqliteStorage) -> None:
        shown = {stored.key: stored.revision for stored in store.list("/g/k/").items}
        assert shown.items() >= self.stored.items(), "what was acknowledged is gone"
        assert not shown.keys() & self.refused, "what was refused is there"
        assert shown.keys() <= self.stored.keys() | self.unknown
        assert sorted(shown.values()) == list(range(1, store.revision() + 1))
        assert all(batch <= shown.keys() or not batch & shown.keys() for batch in self.batches), "half a commit"
        assert [(change.key, change.revision) for change in self.seen] == sorted(
            shown.items(), key=lambda item: item[1]
        )


async def _play(path: Path, script: Sequence[int | list[Injected] | str]) -> None:
    cluster = Cluster(path)
    for step in script:
        match step:
            case int():
                await cluster.write(step)
                cluster.disk.recover()
            case "try again":
                cluster.store.try_again()
            case list():
                for fault in step:
                    cluster.disk.fail(fault.statement, code=fault.code, executed=fault.executed, skip=fault.skip)
                    cluster.disk.refuses |= fault.refuses
    cluster.disk.recover()
    cluster.store.try_again()
    assert cluster.store.health() == ""
    await cluster.look()
    await cluster.check(cluster.store)
    await cluster.store.close()
    reopened = SqliteStorage(path, LIMITS)
    await cluster.check(reopened)
    await reopened.close()


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(steps, max_size=20))
def test_each_commit_is_there_as_a_whole_or_not_at_all(script: list[int | list[Injected] | str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_play(Path(folder) / "db", script))


def test_a_store_that_cannot_be_closed_cleanly_is_whole_at_the_next_start(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = Cluster(tmp_path / "db")
        await cluster.write(3)
        cluster.disk.fail("COMMIT")
        await cluster.look()
        await cluster.store.close()
        reopened = SqliteStorage(tmp_path / "db", LIMITS)
        await cluster.check(reopened)
        await reopened.close()

    asyncio.run(main())


@pytest.mark.parametrize("statement", ["PRAGMA journal_mode", "CREATE", "UPDATE", "COMMIT", "SELECT"])
def test_a_failure_at_the_start_is_reported_and_the_next_start_succeeds(tmp_path: Path, statement: str) -> None:
    disk = Disk()
    disk.fail(statement)
    with pytest.raises(StorageError, match="cannot be used as the cluster's store"):
        SqliteStorage(tmp_path / "db", connect=disk.connect)
    asyncio.run(SqliteStorage(tmp_path / "db", connect=disk.connect).close())
