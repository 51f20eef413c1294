"""What the file keeps: state, history and the revision counter; and what it does when it cannot."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from koordinator.cluster.data_folder import FolderLock, UnusableFolder
from koordinator.cluster.storage.interface import Compacted, StorageError, WriteFailed
from koordinator.cluster.storage.sqlite import SqliteStorage
from koordinator.cluster.storage.watch_cache import HistoryLimits


def _write(path: Path, writes: int, limits: HistoryLimits | None = None) -> None:
    """Three keys, written over and over; the third is deleted at last."""

    async def main() -> None:
        store = SqliteStorage(path, limits)
        revisions: dict[str, int] = {}
        for number in range(writes):
            key, value = f"/g/k/{number % 3}", b"%d" % number
            if key in revisions:
                revisions[key] = (await store.update(key, value, revisions[key])).revision
            else:
                revisions[key] = (await store.create(key, value)).revision
        await store.delete("/g/k/2", revisions["/g/k/2"])
        await store.close()

    asyncio.run(main())


def _rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM change").fetchone()
        return int(count)


def test_state_and_revision_survive_a_restart(tmp_path: Path) -> None:
    _write(tmp_path / "db", 8)
    store = SqliteStorage(tmp_path / "db")
    found = {stored.key[-1]: (stored.value, stored.revision) for stored in store.list("/g/k/").items}
    asyncio.run(store.close())
    assert (found, store.revision()) == ({"0": (b"6", 7), "1": (b"7", 8)}, 9)


def test_a_watch_resumes_after_a_restart(tmp_path: Path) -> None:
    _write(tmp_path / "db", 8)

    async def resume() -> list[tuple[int, str, bytes | None]]:
        store = SqliteStorage(tmp_path / "db")
        changes = await store.watch("/g/k/", after=6).next() or ()
        await store.close()
        return [(c.revision, c.type, c.previous.value if c.previous else None) for c in changes]

    assert asyncio.run(resume()) == [(7, "updated", b"3"), (8, "updated", b"4"), (9, "deleted", b"5")]


def test_compaction_keeps_the_file_small(tmp_path: Path) -> None:
    _write(tmp_path / "db", 2_000, HistoryLimits(changes=50))
    assert _rows(tmp_path / "db") < 50 + 256 + 3


def test_compacted_history_stays_compacted_after_a_restart(tmp_path: Path) -> None:
    _write(tmp_path / "db", 2_000, HistoryLimits(changes=50))

    async def resume() -> None:
        store = SqliteStorage(tmp_path / "db")
        try:
            await store.watch("/g/k/", after=100).next()
        finally:
            await store.close()

    with pytest.raises(Compacted):
        asyncio.run(resume())


def test_the_revision_counter_survives_compaction_of_everything(tmp_path: Path) -> None:
    async def main() -> int:
        store = SqliteStorage(tmp_path / "db", HistoryLimits(changes=1))
        for _ in range(300):
            await store.delete("/g/k/a", (await store.create("/g/k/a", b"")).revision)
        await store.close()
        reopened = SqliteStorage(tmp_path / "db")
        await reopened.close()
        return reopened.revision()

    assert asyncio.run(main()) == 600


def test_a_failed_commit_fails_its_writers_and_changes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStorage(tmp_path / "db")
        await store.create("/g/k/a", b"")
        with closing(sqlite3.connect(tmp_path / "db")) as other:
            other.execute("DROP TABLE change")
        with pytest.raises(StorageError):
            await store.create("/g/k/b", b"")
        assert (store.revision(), store.get("/g/k/b")) == (1, None)
        await store.close()

    asyncio.run(main())


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(b"not a database" * 100)
    with pytest.raises(StorageError, match="cannot be used"):
        SqliteStorage(tmp_path / "db")


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "db")) as connection:
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(StorageError, match="format 2"):
        SqliteStorage(tmp_path / "db")


def test_the_file_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    _write(tmp_path / "db", 3)
    assert (tmp_path / "db").stat().st_mode & 0o777 == 0o600


def test_a_folder_is_used_by_one_process(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    with pytest.raises(UnusableFolder, match="in use"):
        FolderLock(tmp_path)
    lock.release()
    FolderLock(tmp_path).release()


def _refusal(path: Path) -> str:
    with pytest.raises(StorageError) as refused:
        SqliteStorage(path)
    return str(refused.value)


def test_a_damaged_database_is_refused_with_the_ways_out(tmp_path: Path) -> None:
    _write(tmp_path / "db", 500)
    pages = bytearray((tmp_path / "db").read_bytes())
    pages[4096:] = bytes(len(pages) - 4096)
    (tmp_path / "db").write_bytes(pages)
    text = _refusal(tmp_path / "db")
    assert all(part in text for part in (f"{tmp_path}/db", "the database is damaged", ".recover", "empty cluster"))


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "db")) as connection:
        connection.execute("CREATE TABLE bookmarks (address)")
    assert "another database" in _refusal(tmp_path / "db")
    with closing(sqlite3.connect(tmp_path / "db")) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("bookmarks",)]


def test_a_database_that_another_program_locks_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "db", 3)
    with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert "another program holds a lock" in _refusal(tmp_path / "db")


def test_a_link_in_place_of_the_database_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "db").symlink_to(tmp_path / "elsewhere")
    _refusal(tmp_path / "db")
    assert not (tmp_path / "elsewhere").exists()


def test_writes_to_a_locked_database_fail_soon_and_succeed_afterwards(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStorage(tmp_path / "db")
        with closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(WriteFailed, match="another program holds a lock"):
                await store.create("/g/k/a", b"")
        assert (await store.create("/g/k/a", b"")).revision == 1
        await store.close()

    asyncio.run(main())
