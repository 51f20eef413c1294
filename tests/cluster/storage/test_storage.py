"""The contract of ``Storage``, held by both drivers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from koordinator.cluster.storage.indexed import IndexedStorage, MemoryStorage
from koordinator.cluster.storage.interface import Compacted, KeyExists, KeyMissing, RevisionMismatch, StorageError
from koordinator.cluster.storage.sqlite import SqliteStorage
from koordinator.cluster.storage.watch_cache import HistoryLimits

Scenario = Callable[[IndexedStorage], Awaitable[None]]
Run = Callable[..., None]


@pytest.fixture(params=["memory", "sqlite"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a scenario on a fresh store of each driver."""

    def run(scenario: Scenario, limits: HistoryLimits | None = None) -> None:
        async def main() -> None:
            store = MemoryStorage(limits) if request.param == "memory" else SqliteStorage(tmp_path / "db", limits)
            try:
                await scenario(store)
            finally:
                await store.close()

        asyncio.run(main())

    return run


def test_each_write_takes_the_next_revision(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        created = await store.create("/g/k/a", b"1")
        updated = await store.update("/g/k/a", b"2", created.revision)
        deleted = await store.delete("/g/k/a", updated.revision)
        assert [created.revision, updated.revision, deleted.revision, store.revision()] == [1, 2, 3, 3]

    run(scenario)


def test_create_of_an_existing_key_fails(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        await store.create("/g/k/a", b"1")
        with pytest.raises(KeyExists):
            await store.create("/g/k/a", b"2")

    run(scenario)


def test_stale_update_names_the_current_state(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        first = await store.create("/g/k/a", b"1")
        second = await store.update("/g/k/a", b"2", first.revision)
        with pytest.raises(RevisionMismatch) as refused:
            await store.update("/g/k/a", b"3", first.revision)
        assert refused.value.current == second

    run(scenario)


def test_delete_of_a_missing_key_fails(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        with pytest.raises(KeyMissing):
            await store.delete("/g/k/a", 1)

    run(scenario)


def test_of_concurrent_updates_from_one_revision_one_wins(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        first = await store.create("/g/k/a", b"0")
        attempts = [store.update("/g/k/a", b"%d" % i, first.revision) for i in range(5)]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert sum(isinstance(result, RevisionMismatch) for result in results) == 4

    run(scenario)


def test_a_cancelled_writer_does_not_disturb_the_others(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        async with asyncio.TaskGroup() as group:
            cancelled = group.create_task(store.create("/g/k/a", b"1"))
            other = group.create_task(store.create("/g/k/b", b"1"))
            await asyncio.sleep(0)
            cancelled.cancel()
        assert other.result().key == "/g/k/b"
        assert store.get("/g/k/a") is not None

    run(scenario)


def test_list_is_in_key_order_and_within_the_prefix(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        for key in ("/g/k/ns/b", "/g/k/ns-2/a", "/g/k/ns/a", "/g/other/ns/a"):
            await store.create(key, b"")
        assert [stored.key for stored in store.list("/g/k/ns/").items] == ["/g/k/ns/a", "/g/k/ns/b"]

    run(scenario)


def test_pages_see_the_state_of_the_first_one(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        for name in "abcd":
            await store.create(f"/g/k/{name}", b"old")
        first = store.list("/g/k/", limit=2)
        await store.delete("/g/k/c", 3)
        await store.update("/g/k/d", b"new", 4)
        await store.create("/g/k/e", b"new")
        second = store.list("/g/k/", limit=2, start=first.next_key, revision=first.revision)
        assert [(stored.key[-1], stored.value, stored.revision) for stored in second.items] == [
            ("c", b"old", 3),
            ("d", b"old", 4),
        ]
        assert (second.next_key, second.remaining, second.revision) == (None, 0, 4)

    run(scenario)


def test_remaining_counts_what_follows_the_page(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        for name in "abcde":
            await store.create(f"/g/k/{name}", b"")
        assert store.list("/g/k/", limit=2).remaining == 3

    run(scenario)


def test_page_of_a_trimmed_revision_is_compacted(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        stored = await store.create("/g/k/a", b"")
        for _ in range(5):
            stored = await store.update("/g/k/a", b"", stored.revision)
        with pytest.raises(Compacted):
            store.list("/g/k/", revision=1)

    run(scenario, HistoryLimits(changes=3))


def test_watch_replays_then_follows(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        for name in "abc":
            await store.create(f"/g/k/{name}", b"")
        watch = store.watch("/g/k/", after=1)
        assert [change.key for change in await watch.next() or ()] == ["/g/k/b", "/g/k/c"]
        await store.create("/g/other/x", b"")
        await store.create("/g/k/d", b"")
        assert [change.revision for change in await watch.next() or ()] == [5]

    run(scenario)


def test_change_carries_what_was_before(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        first = await store.create("/g/k/a", b"1")
        second = await store.update("/g/k/a", b"2", first.revision)
        await store.delete("/g/k/a", second.revision, b"last")
        created, updated, deleted = await store.watch("/g/k/", after=0).next() or ()
        assert (created.previous, updated.previous, deleted.previous) == (None, first, second)
        assert (deleted.type, deleted.current.value) == ("deleted", b"last")

    run(scenario)


def test_a_reader_that_falls_behind_is_reported(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        watch = store.watch("/g/k/", after=0)
        for number in range(10):
            await store.create(f"/g/k/{number}", b"")
        with pytest.raises(Compacted) as reported:
            await watch.next()
        assert reported.value.oldest == 7

    run(scenario, HistoryLimits(changes=4))


def test_history_is_bounded_by_size_too(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        for number in range(10):
            await store.create(f"/g/k/{number}", bytes(100))
        assert [change.revision for change in await store.watch("/g/k/", after=7).next() or ()] == [8, 9, 10]
        with pytest.raises(Compacted):
            await store.watch("/g/k/", after=5).next()

    run(scenario, HistoryLimits(size=350))


def test_an_idle_reader_outlives_the_trimming_of_other_kinds(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        await store.create("/g/quiet/a", b"")
        watch = store.watch("/g/quiet/", after=store.revision())
        for number in range(10):
            await store.create(f"/g/busy/{number}", b"")
        await store.create("/g/quiet/b", b"")
        assert [change.key for change in await watch.next() or ()] == ["/g/quiet/b"]

    run(scenario, HistoryLimits(changes=4))


def test_a_wake_up_brings_the_revision_up_to_date(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        watch = store.watch("/g/k/", after=0)
        await store.create("/g/other/a", b"")
        watch.wake()
        assert await watch.next() == []
        assert watch.revision == 1

    run(scenario)


def test_end_watches_ends_every_watch(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        watch = store.watch("/g/k/", after=0)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(watch.next())
            await asyncio.sleep(0)
            store.end_watches()
        assert waiting.result() is None

    run(scenario)


def test_a_closed_store_takes_no_writes(run: Run) -> None:
    async def scenario(store: IndexedStorage) -> None:
        await store.close()
        with pytest.raises(StorageError):
            await store.create("/g/k/a", b"")

    run(scenario)
