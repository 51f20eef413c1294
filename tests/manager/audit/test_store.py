"""What the audit keeps, for how long, and what it says of what it does not have."""

from __future__ import annotations

import resource
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.audit_answer import AuditAnswer
from koordinator.api.modification import EVICTED, MOVED, SUPPRESSED, Cause, Modification, Subject
from koordinator.manager.audit.store import FILE, AuditStore, AuditStoreError, Query, ReceivedRecord

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


def received(number: int, *, namespace: str = "shop", at: datetime | None = None, **fields: Any) -> ReceivedRecord:
    about = Subject(kind="Pod", namespace=namespace, name=f"web-{number}", uid=f"uid-{number}")
    given = {
        "program": "koordlet",
        "action": EVICTED,
        "node": "n1",
        "cause": Cause(code="MemoryEvict"),
        "object": about,
    }
    record = Modification(**{**given, "time": at or NOW + number * MINUTE, **fields})
    return ReceivedRecord(f"event-{namespace}-{number}", f"{namespace}/web.{number}", record)


def names(answer: AuditAnswer) -> list[str]:
    return [each.record.object.name for each in answer.records]


@pytest.fixture
def store() -> Iterator[AuditStore]:
    made = AuditStore("", 1 << 20, 7 * DAY)
    made.open()
    yield made
    made.close()


def test_records_are_found_by_pod_node_time_cause_program_and_action(store: AuditStore) -> None:
    node = Subject(kind="Node", name="n2")
    suppressed = received(2, node="n2", action=SUPPRESSED, object=node, pods=["shop/web-0"], cause=Cause(code="CPU"))
    store.add([received(0), received(1), suppressed], NOW)
    for query, expected in (
        (Query(), ["n2", "web-1", "web-0"]),
        (Query(pod="shop/web-0"), ["n2", "web-0"]),
        (Query(pod="shop/web-0", uid="uid-0"), ["n2", "web-0"]),
        (Query(pod="shop/web-0", uid="uid-of-its-successor"), ["n2"]),
        (Query(node="n1"), ["web-1", "web-0"]),
        (Query(namespace="shop"), ["web-1", "web-0"]),
        (Query(cause="CPU"), ["n2"]),
        (Query(action=EVICTED), ["web-1", "web-0"]),
        (Query(program="koord-scheduler"), []),
        (Query(since=NOW + MINUTE), ["n2", "web-1"]),
        (Query(until=NOW + MINUTE, node="n1"), ["web-1", "web-0"]),
    ):
        assert names(store.find(query, NOW)) == expected, query


def test_pages_have_each_record_once_even_of_the_same_time(store: AuditStore) -> None:
    store.add([received(number, at=NOW) for number in range(5)], NOW)
    found, position = [], None
    while True:
        answer = store.find(Query(limit=2, before=position), NOW)
        found += names(answer)
        if not answer.next:
            break
        at, number = answer.next.split(".")
        position = (int(at), int(number))
    assert found == [f"web-{number}" for number in (4, 3, 2, 1, 0)]


def test_an_event_that_is_listed_again_is_one_record(store: AuditStore) -> None:
    assert store.add([received(1)], NOW) == 1
    assert store.add([received(1), received(2)], NOW) == 1


def test_old_records_are_deleted(store: AuditStore) -> None:
    store.add([received(0), received(1, at=NOW + 7 * DAY)], NOW)
    store.add([], NOW + 8 * DAY)
    assert names(store.find(Query(), NOW + 8 * DAY)) == ["web-1"]


def test_a_full_store_drops_the_oldest_of_the_namespace_that_has_most(store: AuditStore) -> None:
    text = "x" * 900
    store.add([received(0, namespace="bank")], NOW)
    for batch in range(30):
        many = range(batch * 100, batch * 100 + 100)
        store.add([received(number, cause=Cause(text=text)) for number in many], NOW)
    assert store.used_bytes() <= 1 << 20
    answer = store.find(Query(), NOW)
    assert answer.records[0].record.object.name == "web-2999"
    assert names(store.find(Query(pod="bank/web-0"), NOW)) == ["web-0"]
    [drop] = answer.coverage.drops
    kept = store.find(Query(limit=3001), NOW).records
    assert (drop.namespace, drop.records) == ("shop", 3001 - len(kept))


def test_large_records_do_not_push_out_small_ones_of_another_namespace(store: AuditStore) -> None:
    store.add([received(number, namespace="bank") for number in range(400)], NOW)
    store.add([received(number, cause=Cause(text="x" * 7000)) for number in range(150)], NOW)
    assert [drop.namespace for drop in store.find(Query(), NOW).coverage.drops] == ["shop"]


def test_the_names_of_pods_take_space_too(store: AuditStore) -> None:
    pods = [f"shop/{'x' * 200}-{number}" for number in range(30)]
    store.add([received(number, namespace="bank", cause=Cause(text="x" * 1000)) for number in range(250)], NOW)
    store.add([received(number, pods=pods) for number in range(60)], NOW)
    assert [drop.namespace for drop in store.find(Query(), NOW).coverage.drops] == ["shop"]


def test_a_time_in_which_nobody_listened_for_longer_than_events_last_is_a_gap(store: AuditStore) -> None:
    for minutes in (0, 30, 80, 200, 210):
        store.add([], NOW + minutes * MINUTE)
    coverage = store.find(Query(), NOW + 210 * MINUTE).coverage
    assert coverage.since == NOW
    assert [(gap.since, gap.until) for gap in coverage.gaps] == [(NOW + 80 * MINUTE, NOW + 140 * MINUTE)]


def test_a_clock_that_was_ahead_hides_no_gap(store: AuditStore) -> None:
    store.add([], NOW)
    store.add([], NOW + 2 * DAY)
    store.add([], NOW + 60 * MINUTE)
    store.add([], NOW + 180 * MINUTE)
    coverage = store.find(Query(), NOW + 180 * MINUTE).coverage
    assert [(gap.since, gap.until) for gap in coverage.gaps] == [(NOW + 60 * MINUTE, NOW + 120 * MINUTE)]


@contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    """No file may become larger than those in the folder are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max(path.stat().st_size for path in folder.iterdir()), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_keeps_new_records_when_old_ones_have_aged(tmp_path: Path) -> None:
    store = AuditStore(str(tmp_path), 1 << 30, DAY)
    store.open()
    text = Cause(text="x" * 900)
    store.add([received(number, at=NOW, cause=text) for number in range(200)], NOW)
    later = [received(number, at=NOW + 2 * DAY, cause=text) for number in range(200, 300)]
    with full_disk(tmp_path):
        with pytest.raises(AuditStoreError):
            store.add([received(number, at=NOW, cause=text) for number in range(200, 300)], NOW)
        store.open()
        assert store.add(later, NOW + 2 * DAY) == 100
    store.close()


def test_a_directory_keeps_records_over_a_restart_for_its_owner_alone(tmp_path: Path) -> None:
    for expected in (1, 0):
        store = AuditStore(str(tmp_path / "audit"), 1 << 20, DAY)
        assert store.open() == ""
        assert store.add([received(1, action=MOVED)], NOW) == expected
        assert names(store.find(Query(), NOW)) == ["web-1"]
        store.close()
    assert stat.S_IMODE((tmp_path / "audit").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "audit").iterdir()} == {0o600}


def test_two_replicas_never_write_to_one_file(tmp_path: Path) -> None:
    first, second = (AuditStore(str(tmp_path), 1 << 20, DAY) for _ in range(2))
    first.open()
    with pytest.raises(AuditStoreError, match="locked"):
        second.open()
    first.close()
    second.open()
    second.close()


def _of_a_later_version() -> bytes:
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("PRAGMA user_version=9")
        return bytes(database.serialize())


@pytest.mark.parametrize("content", [b"no database" * 100, _of_a_later_version()])
def test_a_file_that_cannot_be_read_is_set_aside(content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(content)
    assert_it_is_set_aside(tmp_path)


def test_a_file_that_is_damaged_inside_is_set_aside(tmp_path: Path) -> None:
    store = AuditStore(str(tmp_path), 1 << 20, DAY)
    store.open()
    store.add([received(number, cause=Cause(text="x" * 900)) for number in range(100)], NOW)
    store.close()
    content = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(content[:4096] + bytes(3 * 4096) + content[4 * 4096 :])
    assert_it_is_set_aside(tmp_path)


def assert_it_is_set_aside(folder: Path) -> None:
    store = AuditStore(str(folder), 1 << 20, DAY)
    assert "set aside as audit.sqlite.unreadable" in store.open()
    assert store.add([received(1)], NOW) == 1
    store.close()
