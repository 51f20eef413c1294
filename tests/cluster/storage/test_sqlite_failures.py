"""What writers, readers and watchers get when the database fails, and that the store comes back by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from koordinator.cluster.storage.interface import OutcomeUnknown, StorageError, StorageFull, WriteFailed
from koordinator.cluster.storage.sqlite import SqliteStorage
from tests.cluster.storage.faulty import FULL, Disk

Scenario = Callable[[SqliteStorage, Disk], Awaitable[None]]


def _run(folder: Path, scenario: Scenario) -> list[tuple[str, bytes, int]]:
    """Plays on a store that has /g/k/a at revision 1; returns what a restart finds."""

    async def main() -> list[tuple[str, bytes, int]]:
        disk = Disk()
        store = SqliteStorage(folder / "db", connect=disk.connect)
        await store.create("/g/k/a", b"1")
        try:
            async with asyncio.timeout(10):
                await scenario(store, disk)
        finally:
            disk.recover()
            await store.close()
        reopened = SqliteStorage(folder / "db")
        found = [(s.key, s.value, s.revision) for s in reopened.list("/g/k/").items]
        await reopened.close()
        return found

    return asyncio.run(main())


@pytest.mark.parametrize("statement", ["BEGIN", "INSERT", "COMMIT"])
def test_a_full_disk_refuses_writes_and_changes_nothing(tmp_path: Path, statement: str) -> None:
    async def scenario(store: SqliteStorage, disk: Disk) -> None:
        disk.fail(statement, code=FULL)
        with pytest.raises(StorageFull, match="disk is full"):
            await store.create("/g/k/b", b"2")
        assert (store.revision(), store.get("/g/k/b")) == (1, None)

    assert _run(tmp_path, scenario) == [("/g/k/a", b"1", 1)]


def test_writes_go_on_when_there_is_capacity_again(tmp_path: Path) -> None:
    async def scenario(store: SqliteStorage, disk: Disk) -> None:
        disk.fail("INSERT", code=FULL)
        with pytest.raises(StorageFull):
            await store.create("/g/k/b", b"2")
        assert (await store.create("/g/k/b", b"3")).revision == 2

    assert _run(tmp_path, scenario) == [("/g/k/a", b"1", 1), ("/g/k/b", b"3", 2)]


def test_a_database_at_its_limit_of_pages_recovers(tmp_path: Path) -> None:
    """SQLite's own error instead of an injected one."""

    async def scenario(store: SqliteStorage, disk: Disk) -> None:
        disk.connections[0].execute("PRAGMA max_page_count = 1")
        with pytest.raises(StorageFull):
            await store.create("/g/k/b", bytes(100_000))
        disk.connections[0].execute("PRAGMA max_page_count = 100000")
        await store.create("/g/k/b", b"2")

    assert _run(tmp_path, scenario) == [("/g/k/a", b"1", 1), ("/g/k/b", b"2", 2)]


@pytest.mark.parametrize("statement", ["INSERT", "COMMIT"])
def test_a_failed_rollback_leaves_no_writer_waiting(tmp_path: Path, statement: str) -> None:
    async def scenario(store: SqliteStorage, disk: Disk) -> None:
        disk.fail(statement)
        disk.fail("ROLLBACK")
        results = await asyncio.gather(
            store.create("/g/k/b", b"2"), store.create("/g/k/c", b"2"), return_exceptions=True
        )
        assert [type(result) for result in results] == [WriteFailed, WriteFailed]
        assert (await store.create("/g/k/b", b"3")).revision == 2

    assert _run(tmp_path, scenario) == [("/g/k/a", b"1", 1), ("/g/k/b", b"3", 2)]


def test_an_unforeseen_error_leaves_no_writer_waiting(tmp_path: Path) -> None:
    async def scenario(store: SqliteStorage, disk: Disk) -> None:
        with pytest.raises(StorageError):
            await store.create("/g/k/\ud800", b"2")  # a text that SQLite's driver cannot encode
        await store.create("/g/k/b", b"3")

    assert _run(tmp_path, scenario) == [("/g/k/a", b"1", 1), ("/g/k/b", b"3", 2)]


def test_a_commit_that_was_done_although_it_failed_is_acknowledged(tmp_path: Path) -> None:
    async def scenario(store: SqliteStorage, disk: Disk) -> None:
        watch = store.watch("/g/k/", after=1)
        disk.fail("COMMIT", executed=True)
        assert (await store.create("/g/k/b", b"2")).revision == 2
        assert [change.key for change in await watch.next() or ()] == ["/g/k/b"]

    assert _run(tmp_path, scenario) == [("/g/k/a", b"1", 1), ("/g/k/b", b"2", 2)]


def test_a_commit_in_doubt_is_seen_as_soon_as_the_database_tells(tmp_path: Path) -> None:
    async def scenario(store: SqliteStorage, disk: Disk) -> None:
        watch = store.watch("/g/k/", after=1)
        disk.fail("COMMIT", executed=True)
        disk.fail("SELECT")
        disk.refuses = True
        with pytest.raises(OutcomeUnknown):
            await store.create("/g/k/b", b"2")
        assert store.get("/g/k/b") is None
        assert "db" in store.health()
        disk.recover()
        store.try_again()
        assert [(c.key, c.revision) for c in await watch.next() or ()] == [("/g/k/b", 2)]
        assert store.health() == ""

    assert _run(tmp_path, scenario) == [("/g/k/a", b"1", 1), ("/g/k/b", b"2", 2)]


def test_a_write_that_was_decided_before_a_doubt_was_resolved_is_refused(tmp_path: Path) -> None:
    async def scenario(store: SqliteStorage, disk: Disk) -> None:
        disk.fail("COMMIT", executed=True)
        disk.fail("SELECT")
        disk.refuses = True
        with pytest.raises(OutcomeUnknown):
            await store.create("/g/k/b", b"2")
        disk.recover()
        with pytest.raises(WriteFailed, match="try again"):
            await store.create("/g/k/b", b"3")  # nobody knew of the first one yet
        assert (await store.update("/g/k/b", b"4", 2)).revision == 3

    assert _run(tmp_path, scenario) == [("/g/k/a", b"1", 1), ("/g/k/b", b"4", 3)]


def test_reads_are_served_while_the_database_is_gone(tmp_path: Path) -> None:
    async def scenario(store: SqliteStorage, disk: Disk) -> None:
        disk.fail("COMMIT")
        disk.fail("ROLLBACK")
        disk.refuses = True
        with pytest.raises(StorageError):
            await store.create("/g/k/b", b"2")
        with pytest.raises(StorageError):
            await store.create("/g/k/c", b"2")
        assert [stored.key for stored in store.list("/g/k/").items] == ["/g/k/a"]

    assert _run(tmp_path, scenario) == [("/g/k/a", b"1", 1)]


def test_health_is_reported_until_a_write_succeeds(tmp_path: Path) -> None:
    async def scenario(store: SqliteStorage, disk: Disk) -> None:
        assert store.health() == ""
        disk.fail("INSERT", code=FULL)
        with pytest.raises(StorageFull):
            await store.create("/g/k/b", b"2")
        assert "disk is full" in store.health()
        await store.create("/g/k/b", b"2")
        assert store.health() == ""

    _run(tmp_path, scenario)


def test_the_store_finds_out_by_itself_that_there_is_capacity(tmp_path: Path) -> None:
    async def scenario(store: SqliteStorage, disk: Disk) -> None:
        disk.connections[0].execute("PRAGMA max_page_count = 1")
        with pytest.raises(StorageFull):
            await store.create("/g/k/b", bytes(100_000))
        disk.fail("COMMIT", code=FULL)
        store.try_again()
        assert "disk is full" in store.health()
        disk.connections[0].execute("PRAGMA max_page_count = 100000")
        store.try_again()
        assert store.health() == ""

    _run(tmp_path, scenario)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_database_that_is_not_the_same_any_more_is_not_written_to(tmp_path: Path, *, replaced: bool) -> None:
    """Reopened it would give out revisions that clients know already."""

    async def scenario(store: SqliteStorage, disk: Disk) -> None:
        disk.fail("COMMIT")
        disk.fail("ROLLBACK")
        for name in ("db", "db-wal", "db-shm"):
            (tmp_path / name).rename(tmp_path / f"kept-{name}")
        if replaced:
            await SqliteStorage(tmp_path / "db").close()
        for _ in range(2):
            with pytest.raises(StorageError, match="another database" if replaced else "not there any more"):
                await store.create("/g/k/b", b"2")

    assert _run(tmp_path, scenario) == []
