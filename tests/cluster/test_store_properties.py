"""The store against a simple model: concurrent writers, readers that resume anywhere, restarts, and kill -9.

The model is the log of acknowledged writes in the order of their revisions. Everything that the store shows must follow
from it: no lost update, no skipped or repeated event, no revision used twice, nothing acknowledged gone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.cluster.storage.indexed import IndexedStorage, MemoryStorage
from koordinator.cluster.storage.interface import Compacted, KeyExists, KeyMissing, RevisionMismatch, Stored
from koordinator.cluster.storage.sqlite import SqliteStorage
from koordinator.cluster.storage.watch_cache import HistoryLimits
from tests.examples import examples

KEYS = [f"/g/{kind}/{name}" for kind in ("a", "b") for name in "xyz"]
PREFIXES = ("/g/a/", "/g/b/", "/g/a/x")
LIMITS = HistoryLimits(changes=25)


@dataclass(frozen=True)
class Write:
    """``age`` says how many of the key's revisions ago the writer last looked; 0 is up to date."""

    verb: Literal["create", "update", "delete"]
    key: str
    age: int = 0


@dataclass(frozen=True)
class Acknowledged:
    verb: str
    key: str
    value: bytes
    revision: int
    expected: int


@dataclass
class Reader:
    """A watcher that keeps its place across restarts of the store."""

    prefix: str
    start: int
    position: int
    seen: list[int] = field(default_factory=list)
    lost: bool = False

    async def catch_up(self, store: IndexedStorage) -> None:
        watch = store.watch(self.prefix, self.position)
        try:
            while not self.lost:
                watch.wake()
                changes = await watch.next()
                assert changes is not None
                self.seen += [change.revision for change in changes]
                if not changes:
                    break
            self.position = watch.revision
        except Compacted:
            self.lost = True
        finally:
            watch.close()


@dataclass
class Cluster:
    """A store, what was acknowledged, and what each key's writers have seen."""

    reopen: Callable[[], IndexedStorage]
    log: list[Acknowledged] = field(default_factory=list)
    revisions: dict[str, list[int]] = field(default_factory=dict)
    readers: list[Reader] = field(default_factory=list)
    counter: int = 0

    def __post_init__(self) -> None:
        self.store = self.reopen()

    async def restart(self) -> None:
        await self.store.close()
        self.store = self.reopen()

    async def write(self, write: Write) -> None:
        self.counter += 1
        value = b"%d" % self.counter
        known = self.revisions.get(write.key, [])
        expected = known[max(0, len(known) - 1 - write.age)] if known else 1
        try:
            stored = await self._attempt(write, value, expected)
        except (KeyExists, KeyMissing, RevisionMismatch):
            return
        kept = b"" if write.verb == "delete" else stored.value
        self.log.append(Acknowledged(write.verb, write.key, kept, stored.revision, expected))
        self.revisions.setdefault(write.key, []).append(stored.revision)

    async def _attempt(self, write: Write, value: bytes, expected: int) -> Stored:
        if write.verb == "create":
            return await self.store.create(write.key, value)
        if write.verb == "update":
            return await self.store.update(write.key, value, expected)
        return await self.store.delete(write.key, expected)

    def states(self) -> list[dict[str, tuple[bytes, int]]]:
        """The state after each revision; asserts on the way that each write was allowed."""
        log = sorted(self.log, key=lambda entry: entry.revision)
        assert [entry.revision for entry in log] == list(range(1, len(log) + 1))
        states: list[dict[str, tuple[bytes, int]]] = [{}]
        for entry in log:
            state = dict(states[-1])
            if entry.verb == "create":
                assert entry.key not in state
            else:
                assert state[entry.key][1] == entry.expected, "a lost update"
            if entry.verb == "delete":
                del state[entry.key]
            else:
                state[entry.key] = (entry.value, entry.revision)
            states.append(state)
        return states

    def check(self) -> None:
        states = self.states()
        assert self.store.revision() == len(self.log)
        for prefix in PREFIXES:
            self._check_lists(prefix, states)
        for reader in self.readers:
            until = len(self.log) if not reader.lost else max(reader.seen, default=reader.start)
            expected = [e for e in sorted(self.log, key=lambda e: e.revision) if e.key.startswith(reader.prefix)]
            assert reader.seen == [e.revision for e in expected if reader.start < e.revision <= until]

    def _check_lists(self, prefix: str, states: list[dict[str, tuple[bytes, int]]]) -> None:
        for revision in range(max(0, len(self.log) - 5), len(self.log) + 1):
            page = self.store.list(prefix, revision=revision)
            shown = {stored.key: (stored.value, stored.revision) for stored in page.items}
            assert shown == {key: kept for key, kept in states[revision].items() if key.startswith(prefix)}
            assert list(shown) == sorted(shown)


writes = st.builds(
    Write, st.sampled_from(("create", "update", "update", "delete")), st.sampled_from(KEYS), st.integers(0, 2)
)
rounds = st.one_of(
    st.lists(writes, min_size=1, max_size=6),
    st.tuples(st.just("reader"), st.sampled_from(PREFIXES), st.integers(0, 30)),
    st.sampled_from(["restart", "catch up"]),
)
Round = list[Write] | tuple[str, str, int] | str


async def _play(cluster: Cluster, script: list[Round]) -> None:
    for step in script:
        match step:
            case list():
                await asyncio.gather(*(cluster.write(write) for write in step))
            case (_, prefix, back):
                start = max(0, cluster.store.revision() - back)
                cluster.readers.append(Reader(prefix, start, start))
            case "restart":
                await cluster.restart()
            case _:
                for reader in cluster.readers:
                    await reader.catch_up(cluster.store)
    for reader in cluster.readers:
        await reader.catch_up(cluster.store)
    cluster.check()


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(rounds, max_size=40))
def test_sqlite_store_follows_the_model(script: list[Round]) -> None:
    with tempfile.TemporaryDirectory() as folder:

        async def main() -> None:
            cluster = Cluster(lambda: SqliteStorage(Path(folder) / "db", LIMITS))
            await _play(cluster, script)
            await cluster.restart()
            cluster.check()
            await cluster.store.close()

        asyncio.run(main())


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(rounds.filter(lambda step: step != "restart"), max_size=40))
def test_memory_store_follows_the_model(script: list[Round]) -> None:
    asyncio.run(_play(Cluster(lambda: MemoryStorage(LIMITS)), script))


@pytest.mark.parametrize("acknowledged", [1, 100, 1_500])
def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path, acknowledged: int) -> None:
    heard = _write_and_kill(tmp_path / "db", acknowledged)

    async def replay() -> dict[int, str]:
        store = SqliteStorage(tmp_path / "db")
        watch = store.watch("/g/k/", after=0)
        kept: dict[int, str] = {}
        while len(kept) < store.revision():
            kept.update((c.revision, f"{c.key} {c.current.value.decode()}") for c in await watch.next() or ())
        await store.close()
        return kept

    kept = asyncio.run(replay())
    assert list(kept) == list(range(1, len(kept) + 1))
    assert heard.items() <= kept.items()


def _write_and_kill(database: Path, acknowledged: int) -> dict[int, str]:
    """What the child acknowledged, by revision, until it was killed in the middle of its writes."""
    heard: dict[int, str] = {}
    command = [sys.executable, "-m", "tests.cluster.storage.writer", str(database)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if not line.endswith("\n"):
                break
            revision, _, written = line.rstrip("\n").partition(" ")
            heard[int(revision)] = written
            if len(heard) == acknowledged:
                os.kill(child.pid, signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    return heard
