"""A full disk does not refuse the deletions that free it, and nothing else takes the space that is kept for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from koordinator.cluster.storage.ballast import Ballast
from koordinator.cluster.storage.interface import Compacted, StorageFull
from koordinator.cluster.storage.sqlite import SqliteStorage
from tests.cluster.storage.faulty import FULL, Disk

SIZE = 1 << 16


@dataclass
class Space:
    """Of the disk, as it is told."""

    free: int = 10 * SIZE

    def __call__(self, folder: Path) -> int:
        return self.free


@dataclass
class Store:
    storage: SqliteStorage
    disk: Disk
    space: Space
    file: Path

    def fill(self, times: int = 1) -> None:
        self.space.free = 0
        self.disk.fail("INSERT", code=FULL, times=times)


Scenario = Callable[[Store], Awaitable[None]]


def _store(folder: Path) -> Store:
    disk, space, file = Disk(), Space(), folder / "ballast"
    storage = SqliteStorage(folder / "db", connect=disk.connect, ballast=Ballast(file, SIZE, space))
    return Store(storage, disk, space, file)


def _run(folder: Path, scenario: Scenario) -> None:
    """On a store that has /g/k/a and /g/k/b."""

    async def main() -> None:
        store = _store(folder)
        for name in "ab":
            await store.storage.create(f"/g/k/{name}", b"1")
        async with asyncio.timeout(10):
            await scenario(store)
        store.disk.recover()
        await store.storage.close()

    asyncio.run(main())


def test_space_is_kept_from_the_start(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        status = store.file.stat()
        assert (status.st_size, status.st_mode & 0o777, status.st_blocks * 512 >= SIZE) == (SIZE, 0o600, True)

    _run(tmp_path, scenario)


@pytest.mark.parametrize("statement", ["INSERT", "COMMIT"])
def test_a_deletion_takes_it_when_the_disk_is_full(tmp_path: Path, statement: str) -> None:
    async def scenario(store: Store) -> None:
        store.space.free = 0
        store.disk.fail(statement, code=FULL)
        await store.storage.delete("/g/k/a", 1)
        assert (store.storage.get("/g/k/a"), store.file.exists()) == (None, False)

    _run(tmp_path, scenario)


def test_a_commit_in_doubt_that_was_not_done_takes_it(tmp_path: Path) -> None:
    """As a disk answers that is full in the middle of the log: the transaction is over, and nothing says how."""

    async def scenario(store: Store) -> None:
        store.space.free = 0
        store.disk.fail("COMMIT", code=FULL)
        store.disk.fail("ROLLBACK", code=FULL)
        await store.storage.delete("/g/k/a", 1)
        assert (store.storage.get("/g/k/a"), store.file.exists()) == (None, False)

    _run(tmp_path, scenario)


def test_so_does_a_step_towards_a_deletion(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        store.fill()
        assert (await store.storage.update("/g/k/a", b"2", 1, frees=True)).value == b"2"

    _run(tmp_path, scenario)


def test_nothing_else_does(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        store.fill(times=2)
        for write in (store.storage.create("/g/k/c", b"1"), store.storage.update("/g/k/a", b"2", 1)):
            with pytest.raises(StorageFull):
                await write
        assert store.file.exists()

    _run(tmp_path, scenario)


def test_what_it_leaves_is_for_deletions_alone(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        store.fill()
        await store.storage.delete("/g/k/a", 1)
        with pytest.raises(StorageFull, match="for deletions"):
            await store.storage.create("/g/k/c", b"1")
        await store.storage.delete("/g/k/b", 2)

    _run(tmp_path, scenario)


def test_a_deletion_does_not_fail_for_what_is_written_beside_it(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        store.fill(times=2)
        created, deleted = await asyncio.gather(
            store.storage.create("/g/k/c", b"1"), store.storage.delete("/g/k/a", 1), return_exceptions=True
        )
        assert isinstance(created, StorageFull)
        assert not isinstance(deleted, BaseException)
        assert [stored.key for stored in store.storage.list("/g/k/").items] == ["/g/k/b"]

    _run(tmp_path, scenario)


def test_it_is_laid_in_again_when_there_is_space(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        store.fill()
        await store.storage.delete("/g/k/a", 1)
        store.storage.try_again()
        assert not store.file.exists()
        store.space.free = 2 * SIZE
        store.storage.try_again()
        assert store.file.exists()
        await store.storage.create("/g/k/c", b"1")

    _run(tmp_path, scenario)


def test_what_was_deleted_leaves_the_history_and_the_log(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        store.fill()
        await store.storage.delete("/g/k/a", 1)
        store.storage.try_again()
        kept = store.disk.connections[0].execute("SELECT key FROM change").fetchall()
        log = tmp_path / "db-wal"
        assert (kept, log.stat().st_size) == ([("/g/k/b",)], 0)
        with pytest.raises(Compacted):
            store.storage.watch("/g/k/", 0).check()

    _run(tmp_path, scenario)


def test_a_deletion_is_stored_without_what_is_deleted_and_replayed_with_it(tmp_path: Path) -> None:
    async def main() -> list[bytes]:
        store = _store(tmp_path)
        await store.storage.create("/g/k/a", b"1")
        await store.storage.create("/g/k/b", b"2")
        store.fill()
        await store.storage.delete("/g/k/a", 1)
        await store.storage.delete("/g/k/b", 2)
        (value,) = store.disk.connections[0].execute("SELECT value FROM change WHERE revision = 4").fetchone()
        assert value == b""
        await store.storage.close()
        reopened = SqliteStorage(tmp_path / "db", ballast=Ballast(store.file, SIZE, store.space))
        replayed = [change.current.value for change in reopened.watch("/g/k/", 2).pending()]
        await reopened.close()
        return replayed

    assert asyncio.run(main()) == [b"1", b"2"]


def test_a_watch_that_has_seen_everything_goes_on(tmp_path: Path) -> None:
    async def scenario(store: Store) -> None:
        watch = store.storage.watch("/g/k/", store.storage.revision())
        store.fill()
        await store.storage.delete("/g/k/a", 1)
        assert [change.type for change in watch.pending()] == ["deleted"]
        store.storage.try_again()
        await store.storage.delete("/g/k/b", 2)
        assert [change.key for change in watch.pending()] == ["/g/k/b"]

    _run(tmp_path, scenario)


def test_a_server_starts_on_a_full_disk(tmp_path: Path) -> None:
    async def main() -> list[str]:
        first = _store(tmp_path)
        await first.storage.create("/g/k/a", b"1")
        await first.storage.close()
        disk = Disk()
        disk.fail("UPDATE", code=FULL)
        second = SqliteStorage(
            tmp_path / "db", connect=disk.connect, ballast=Ballast(tmp_path / "ballast", SIZE, Space(0))
        )
        found = [stored.key for stored in second.list("/g/k/").items]
        await second.close()
        return found

    assert asyncio.run(main()) == ["/g/k/a"]
    assert not (tmp_path / "ballast").exists()


def test_without_space_for_it_the_store_works_all_the_same(tmp_path: Path) -> None:
    ballast = Ballast(tmp_path / "ballast", SIZE, Space(2 * SIZE - 1))
    ballast.lay_in()
    assert (ballast.release(), ballast.spares(), ballast.is_released) == (False, True, False)
