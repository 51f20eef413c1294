"""What handlers are told, whatever the API server sends."""

from __future__ import annotations

import asyncio
import logging

import pytest

from koordinator.api.pod import Pod
from koordinator.kube.interface import WatchEvent
from tests.kube.fake_client import HANG, ScriptedClient, added, bookmark, deleted, expired, modified, page
from tests.kube.informer_log import Bench, broken, play, pod


@pytest.fixture
def client() -> ScriptedClient:
    return ScriptedClient()


def test_initial_list_is_added_as_initial_and_later_objects_are_not(client: ScriptedClient) -> None:
    client.lists.append(page(pod("a", 1), version=5))
    client.watches.append([added(pod("b", 6)), HANG])
    assert play(client) == ["+a@1*", "+b@6"]


def test_pages_are_joined(client: ScriptedClient) -> None:
    client.lists += [page(pod("a", 1), version=5, token="next"), page(pod("b", 2), version=5)]
    assert play(client) == ["+a@1*", "+b@2*"]


def test_update_and_delete(client: ScriptedClient) -> None:
    client.lists.append(page(pod("a", 1), version=5))
    client.watches.append([modified(pod("a", 6)), deleted(pod("a", 7)), HANG])
    assert play(client) == ["+a@1*", "a@1>6", "-a@6"]


def test_duplicate_events_are_reported_once(client: ScriptedClient) -> None:
    client.lists.append(page(version=5))
    client.watches.append([added(pod("a", 6)), added(pod("a", 6)), deleted(pod("a", 7)), deleted(pod("a", 7)), HANG])
    assert play(client) == ["+a@6", "-a@6"]


def test_older_version_does_not_overwrite_a_newer(client: ScriptedClient) -> None:
    client.lists.append(page(pod("a", 9), version=9))
    client.watches.append([modified(pod("a", 10)), modified(pod("a", 9)), modified(pod("a", 2)), HANG])
    assert play(client) == ["+a@9*", "a@9>10"]


def test_late_event_does_not_bring_a_deleted_object_back(client: ScriptedClient) -> None:
    client.lists.append(page(pod("a", 1), version=5))
    client.watches.append([deleted(pod("a", 8)), modified(pod("a", 7)), HANG])
    assert play(client) == ["+a@1*", "-a@1"]


def test_object_that_enters_the_selection_again_is_added(client: ScriptedClient) -> None:
    client.lists.append(page(pod("a", 1), version=5))
    client.watches.append([deleted(pod("a", 8)), added(pod("a", 9)), HANG])
    assert play(client) == ["+a@1*", "-a@1", "+a@9"]


def test_recreated_object_is_deleted_first(client: ScriptedClient) -> None:
    client.lists.append(page(pod("a", 1, "first"), version=5))
    client.watches.append([modified(pod("a", 8, "second")), HANG])
    assert play(client) == ["+a@1*", "-a@1", "+a@8"]


def test_late_deletion_of_the_previous_object_is_ignored(client: ScriptedClient) -> None:
    client.lists.append(page(pod("a", 6, "second"), version=6))
    client.watches.append([deleted(pod("a", 4, "first")), HANG])
    assert play(client) == ["+a@6*"]


def test_relist_reports_the_difference(client: ScriptedClient) -> None:
    client.lists += [
        page(pod("gone", 1), pod("same", 2), pod("changed", 3), pod("reborn", 4, "one"), version=5),
        page(pod("same", 2), pod("changed", 8), pod("reborn", 9, "two"), pod("new", 7), version=9),
    ]
    client.watches.append([expired()])
    assert play(client)[4:] == ["changed@3>8", "-reborn@4", "+reborn@9", "+new@7", "-gone@1"]


def test_event_from_before_a_relist_does_not_bring_a_vanished_object_back(client: ScriptedClient) -> None:
    client.lists += [page(pod("a", 1), version=5), page(version=9)]
    client.watches += [[expired()], [modified(pod("a", 7)), HANG]]
    assert play(client) == ["+a@1*", "-a@1"]


def test_raising_handler_stops_neither_the_others_nor_the_informer(
    client: ScriptedClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.lists.append(page(pod("a", 1), pod("b", 2), version=5))
    bench = Bench(client)
    seen: list[str] = []

    def fail(obj: Pod, initial: bool, /) -> None:
        raise RuntimeError("no")

    bench.informer.add_handlers(name="failing", on_add=fail)
    bench.informer.add_handlers(on_add=lambda obj, initial: seen.append(obj.metadata.name))
    asyncio.run(bench.play())
    assert seen == ["a", "b"]
    assert bench.informer.handler_errors == 2
    assert "handler failing failed on Pod default/a" in caplog.text


def test_late_handler_is_told_what_is_there(client: ScriptedClient) -> None:
    client.lists.append(page(pod("a", 1), version=5))
    bench = Bench(client)
    asyncio.run(bench.play())
    seen: list[tuple[str, bool]] = []
    bench.informer.add_handlers(on_add=lambda obj, initial: seen.append((obj.metadata.name, initial)))
    assert seen == [("a", True)]


def test_not_synced_before_the_last_page(client: ScriptedClient) -> None:
    client.lists.append(page(pod("a", 1), version=5, token="next"))
    bench = Bench(client)
    asyncio.run(bench.play())
    assert not bench.informer.has_synced


def test_handlers_have_seen_the_list_when_synced(client: ScriptedClient) -> None:
    client.lists.append(page(pod("a", 1), version=5))
    bench = Bench(client)

    async def scenario() -> list[str]:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(bench.informer.run())
            await bench.informer.wait_synced(5)
            running.cancel()
        return bench.log.lines

    assert asyncio.run(scenario()) == ["+a@1*"]


def test_transform_is_applied_before_storing(client: ScriptedClient) -> None:
    client.lists.append(page(pod("a", 1, annotations={"big": "x" * 9}), version=5))
    bench = Bench(client, transform=lambda obj: pod(obj.metadata.name, int(obj.metadata.resource_version)))
    asyncio.run(bench.play())
    assert [obj.metadata.annotations for obj in bench.informer.list()] == [{}]


def test_object_that_a_transform_refuses_is_malformed(client: ScriptedClient) -> None:
    client.lists.append(page(pod("a", 1), pod("b", 2), version=5))

    def picky(obj: Pod) -> Pod:
        if obj.metadata.name == "a":
            raise ValueError("not a")
        return obj

    assert play(client, transform=picky) == ["!a@1", "+b@2*"]


def test_malformed_object_is_reported_once_per_version(
    client: ScriptedClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.lists += [page(version=5, malformed=[broken("a", 1)]), page(version=9, malformed=[broken("a", 1)])]
    client.watches += [[expired()]]
    with caplog.at_level(logging.WARNING):
        assert play(client) == ["!a@1"]
    assert caplog.text.count("default/a is not readable") == 1


def test_object_that_becomes_malformed_keeps_its_last_readable_version(client: ScriptedClient) -> None:
    client.lists += [page(pod("a", 1), version=5), page(version=9, malformed=[broken("a", 6)])]
    client.watches.append([expired()])
    bench = Bench(client)
    assert asyncio.run(bench.play()) == ["+a@1*", "!a@6"]
    assert bench.informer.get("default/a") is not None


def test_malformed_recreation_deletes_the_previous_object(client: ScriptedClient) -> None:
    client.lists.append(page(pod("a", 1, "one"), version=5))
    client.watches += [[WatchEvent("ADDED", broken("a", 6, "two"), "6"), HANG]]
    assert play(client) == ["+a@1*", "-a@1", "!a@6"]


def test_repaired_object_is_no_longer_listed_as_malformed(client: ScriptedClient) -> None:
    client.lists.append(page(version=5, malformed=[broken("a", 1)]))
    client.watches.append([modified(pod("a", 6)), HANG])
    bench = Bench(client)
    assert asyncio.run(bench.play()) == ["!a@1", "+a@6", "?a@1"]
    assert bench.informer.malformed == ()


def test_the_end_of_a_malformed_object_is_reported(client: ScriptedClient) -> None:
    client.lists.append(page(version=5, malformed=[broken("a", 1)]))
    client.watches.append([WatchEvent("DELETED", broken("a", 6), "6"), HANG])
    assert play(client) == ["!a@1", "?a@1"]


def test_the_end_of_a_malformed_object_during_a_disconnection_is_reported(client: ScriptedClient) -> None:
    client.lists += [page(version=5, malformed=[broken("a", 1)]), page(version=9)]
    client.watches.append([expired()])
    assert play(client) == ["!a@1", "?a@1"]


def test_a_late_event_does_not_bring_a_malformed_object_back(client: ScriptedClient) -> None:
    client.lists.append(page(version=5, malformed=[broken("a", 1)]))
    late: WatchEvent[Pod] = WatchEvent("MODIFIED", broken("a", 6), "6")
    client.watches.append([WatchEvent("DELETED", broken("a", 7), "7"), late, HANG])
    assert play(client) == ["!a@1", "?a@1"]


def test_a_late_event_does_not_replace_a_newer_malformed_version(client: ScriptedClient) -> None:
    client.lists.append(page(version=5, malformed=[broken("a", 5)]))
    client.watches.append([WatchEvent("MODIFIED", broken("a", 4), "4"), HANG])
    assert play(client) == ["!a@5"]


def test_the_late_end_of_its_predecessor_is_not_the_end_of_a_malformed_object(client: ScriptedClient) -> None:
    client.lists.append(page(version=9, malformed=[broken("a", 8, "two")]))
    client.watches.append([WatchEvent("DELETED", pod("a", 7, "one"), "7"), HANG])
    bench = Bench(client)
    assert asyncio.run(bench.play()) == ["!a@8"]
    assert [each.uid for each in bench.informer.malformed] == ["two"]


def test_resync_repeats_what_is_there(client: ScriptedClient) -> None:
    client.lists.append(page(pod("a", 1), version=5))
    client.watches.append([bookmark(6), HANG])
    bench = Bench(client, resync_period=60.0)

    async def scenario() -> list[str]:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(bench.informer.run())
            await bench.clock.advance(121)
            running.cancel()
        return bench.log.lines

    assert asyncio.run(scenario()) == ["+a@1*", "a@1>1", "a@1>1"]


def test_handler_may_register_another_while_called(client: ScriptedClient) -> None:
    client.lists.append(page(pod("a", 1), version=5))
    bench = Bench(client)
    seen: list[str] = []

    def register(obj: Pod, initial: bool, /) -> None:
        bench.informer.add_handlers(on_add=lambda obj, initial: seen.append(obj.metadata.name))

    bench.informer.add_handlers(on_add=register)
    asyncio.run(bench.play())
    assert seen == ["a"]
