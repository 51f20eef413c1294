"""What is left when the machine stops and takes what was not on the disk with it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from koordinator.cluster.storage.database import RESERVED
from koordinator.cluster.storage.interface import Compacted
from koordinator.cluster.storage.sqlite import SqliteStorage
from koordinator.cluster.storage.watch_cache import HistoryLimits
from tests.cluster.storage.faulty import Disk

WRITES = 40


def _cut(folder: Path, *, writes: int = WRITES, synced_only: bool = True) -> tuple[Path, int]:
    """A copy of the files as they are after a power cut, and the last revision that a client was told.

    With ``synced_only`` the write-ahead log ends where SQLite last synced it: when the store was opened.
    """
    copy = folder / "after"
    copy.mkdir()

    async def main() -> int:
        store = SqliteStorage(folder / "db", boot="first")
        synced = (folder / "db-wal").stat().st_size
        stored = await store.create("/g/k/a", b"0")
        for number in range(1, writes):
            stored = await store.update("/g/k/a", b"%d" % number, stored.revision)
        for name in ("db", "db-wal"):
            shutil.copy(folder / name, copy / name)
        if synced_only:
            with (copy / "db-wal").open("r+b") as log:
                log.truncate(synced)
        await store.close()
        return stored.revision

    return copy / "db", asyncio.run(main())


def _reopened(path: Path, boot: str) -> SqliteStorage:
    return SqliteStorage(path, boot=boot)


def test_a_revision_that_was_given_out_is_not_given_out_again(tmp_path: Path) -> None:
    path, last = _cut(tmp_path)

    async def next_revision() -> int:
        store = _reopened(path, "second")
        assert store.list("/g/k/").items == []  # the cut took everything
        stored = await store.create("/g/k/b", b"")
        await store.close()
        return stored.revision

    assert asyncio.run(next_revision()) > last


def test_who_knows_a_lost_revision_has_to_list_again(tmp_path: Path) -> None:
    path, last = _cut(tmp_path)

    async def resume() -> None:
        store = _reopened(path, "second")
        try:
            async with asyncio.timeout(5):
                await store.watch("/g/k/", after=last).next()
        finally:
            await store.close()

    with pytest.raises(Compacted):
        asyncio.run(resume())


def test_what_was_kept_is_there_after_a_cut(tmp_path: Path) -> None:
    path, last = _cut(tmp_path, synced_only=False)

    async def kept() -> list[tuple[bytes, int]]:
        store = _reopened(path, "second")
        found = [(stored.value, stored.revision) for stored in store.list("/g/k/").items]
        await store.close()
        return found

    assert asyncio.run(kept()) == [(b"%d" % (WRITES - 1), last)]


def test_the_history_before_a_cut_is_dropped_from_the_file(tmp_path: Path) -> None:
    path, _ = _cut(tmp_path, synced_only=False)
    asyncio.run(_reopened(path, "second").close())
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM change").fetchone() == (1,)


def test_a_process_that_was_killed_lost_nothing_and_skips_nothing(tmp_path: Path) -> None:
    path, last = _cut(tmp_path, synced_only=False)
    store = _reopened(path, "first")
    asyncio.run(store.close())
    assert store.revision() == last


def test_a_clean_stop_skips_nothing(tmp_path: Path) -> None:
    _, last = _cut(tmp_path)
    store = _reopened(tmp_path / "db", "second")
    asyncio.run(store.close())
    assert store.revision() == last


def test_without_a_boot_id_every_unclean_stop_counts_as_a_cut(tmp_path: Path) -> None:
    path, last = _cut(tmp_path, synced_only=False)
    store = _reopened(path, "")
    asyncio.run(store.close())
    assert store.revision() > last


def test_a_cut_after_a_cut(tmp_path: Path) -> None:
    path, last = _cut(tmp_path)
    for boot in ("second", "third", "fourth"):
        copy = path.with_name(boot)

        async def write(path: Path = path, boot: str = boot, copy: Path = copy) -> int:
            store = _reopened(path, boot)
            synced = path.with_name(f"{path.name}-wal").stat().st_size
            given = (await store.create(f"/g/k/{boot}", b"")).revision
            shutil.copy(path, copy)
            wal = path.with_name(f"{path.name}-wal").read_bytes()[:synced]
            copy.with_name(f"{copy.name}-wal").write_bytes(wal)
            await store.close()
            return given

        given = asyncio.run(write())
        assert given > last
        last, path = given, copy


def test_a_block_of_revisions_is_synced_before_it_is_used(tmp_path: Path) -> None:
    """The statements tell: the commit that crosses into a new block runs with synchronous=FULL."""

    async def main() -> list[str]:
        disk = Disk()
        store = SqliteStorage(tmp_path / "db", HistoryLimits(changes=10), connect=disk.connect, boot="first")
        await asyncio.gather(*(store.create(f"/g/k/{number}", b"") for number in range(RESERVED - 1)))
        await store.create("/g/k/last", b"")
        disk.statements.clear()
        await store.create("/g/k/first", b"")
        statements = [statement.split("(")[0] for statement in disk.statements]
        await store.close()
        return statements

    statements = asyncio.run(main())
    assert [s.split()[0] if s[0] != "P" else s for s in statements if not s.startswith("DELETE")] == [
        "PRAGMA synchronous = FULL", "BEGIN", "INSERT", "UPDATE", "COMMIT", "PRAGMA synchronous = NORMAL",
    ]  # fmt: skip
