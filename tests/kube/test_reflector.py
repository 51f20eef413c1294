"""Connections that end, break, stall, lag and expire."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.pod import Pod
from koordinator.kube.errors import ApiStatusError, TransportError
from koordinator.kube.reflector import ReflectorOptions
from tests.examples import examples
from tests.kube.fake_client import (
    END,
    HANG,
    ScriptedClient,
    added,
    bookmark,
    deleted,
    expired,
    modified,
    not_found,
    page,
)
from tests.kube.informer_log import Bench, play, pod


@pytest.fixture
def client() -> ScriptedClient:
    return ScriptedClient()


def test_watch_starts_at_the_list(client: ScriptedClient) -> None:
    client.lists.append(page(version=5))
    play(client)
    assert client.watched_from() == ["5"]


def test_truncated_watch_resumes_behind_the_last_event(client: ScriptedClient) -> None:
    client.lists.append(page(version=5))
    client.watches += [[added(pod("a", 6)), TransportError("cut")], [added(pod("b", 7)), HANG]]
    assert play(client) == ["+a@6", "+b@7"]
    assert client.watched_from() == ["5", "6"]


def test_bookmark_moves_the_resume_point(client: ScriptedClient) -> None:
    client.lists.append(page(version=5))
    client.watches += [[bookmark(40), END]]
    play(client)
    assert client.watched_from() == ["5", "40"]


def test_reordered_events_resume_behind_the_newest(client: ScriptedClient) -> None:
    client.lists.append(page(version=5))
    client.watches += [[added(pod("a", 9)), added(pod("b", 8)), END]]
    assert play(client) == ["+a@9", "+b@8"]
    assert client.watched_from() == ["5", "9"]


def test_orderly_end_is_followed_at_once(client: ScriptedClient) -> None:
    client.lists.append(page(version=5))
    client.watches += [[added(pod("a", 6)), END]]
    bench = Bench(client)
    asyncio.run(bench.play())
    assert bench.informer.reflector_statistics.failures == 0


def test_watch_that_ends_at_once_backs_off(client: ScriptedClient) -> None:
    client.lists.append(page(version=5))
    client.watches += [[END], [END], [END]]
    bench = Bench(client)
    asyncio.run(bench.play())
    assert bench.informer.reflector_statistics.failures == 3
    assert bench.clock.monotonic() > 0.8 + 1.6 + 3.2


def test_api_server_lost_for_minutes(client: ScriptedClient) -> None:
    client.lists.append(page(pod("a", 1), version=5))
    client.watches += [[TransportError("connection refused")] for _ in range(40)]
    client.watches.append([modified(pod("a", 6)), HANG])
    bench = Bench(client)
    assert asyncio.run(bench.play()) == ["+a@1*", "a@1>6"]
    assert bench.clock.monotonic() > 300


def test_failed_initial_list_is_repeated(client: ScriptedClient) -> None:
    client.lists += [TransportError("refused"), ApiStatusError(500, "InternalError", ""), page(pod("a", 1), version=5)]
    assert play(client) == ["+a@1*"]


def test_retry_after_is_honoured(client: ScriptedClient) -> None:
    client.lists += [ApiStatusError(429, "TooManyRequests", "", retry_after=70.0), page(version=5)]
    bench = Bench(client)
    asyncio.run(bench.play())
    assert bench.clock.monotonic() >= 70


def test_watches_that_expire_at_once_bring_no_crowd_of_lists(client: ScriptedClient) -> None:
    client.lists += [page(pod("a", 1), version=5) for _ in range(1000)]
    client.watches += [[expired()] for _ in range(1000)]
    bench = Bench(client)
    asyncio.run(bench.play(60.0))
    assert 3 <= bench.informer.reflector_statistics.lists <= 8


def test_pages_that_expire_are_replaced_by_one_full_list(client: ScriptedClient) -> None:
    client.lists += [page(pod("a", 1), version=5, token="next"), expired(), page(pod("b", 7), version=9)]
    assert play(client) == ["+a@1*", "+b@7*", "-a@1"]
    assert [arguments["limit"] for verb, arguments in client.calls if verb == "list"] == [500, 500, 0]


def test_stalled_watch_is_cut_and_resumed(client: ScriptedClient) -> None:
    client.lists.append(page(version=5))
    client.watches += [[added(pod("a", 6)), HANG], [added(pod("b", 7)), HANG]]
    bench = Bench(client, options=ReflectorOptions(watch_timeout=(300, 300), watch_grace=30))

    async def scenario() -> list[str]:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(bench.informer.run())
            await bench.clock.advance(340)
            running.cancel()
        return bench.log.lines

    assert asyncio.run(scenario()) == ["+a@6", "+b@7"]


def test_stalled_list_is_cut_and_repeated(client: ScriptedClient) -> None:
    bench = Bench(client, options=ReflectorOptions(list_deadline=60))

    async def scenario() -> list[str]:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(bench.informer.run())
            await bench.clock.advance(50)
            client.lists.append(page(pod("a", 1), version=5))
            await bench.clock.advance(20)
            running.cancel()
        return bench.log.lines

    assert asyncio.run(scenario()) == ["+a@1*"]


def test_list_of_a_lagging_server_is_not_believed(client: ScriptedClient) -> None:
    client.lists += [page(pod("a", 8), version=9), page(version=4), page(pod("a", 8), version=9)]
    client.watches.append([expired()])
    assert play(client) == ["+a@8*"]


def test_list_of_a_restored_server_is_believed_in_the_end(client: ScriptedClient) -> None:
    client.lists += [page(pod("a", 8), pod("b", 7), version=9), *[page(pod("a", 3), version=4) for _ in range(4)]]
    client.watches.append([expired()])
    assert play(client) == ["+a@8*", "+b@7*", "a@8>3", "-b@7"]


def test_bookmark_from_the_past_leads_to_a_list(client: ScriptedClient) -> None:
    client.lists += [page(version=9), page(pod("a", 10), version=10)]
    client.watches.append([bookmark(3)])
    assert play(client) == ["+a@10"]


def test_absent_kind_counts_as_empty_until_it_appears(client: ScriptedClient) -> None:
    client.lists += [not_found("the server could not find the requested resource"), page(pod("a", 3), version=4)]
    bench = Bench(client, absent_is_empty=True)
    assert asyncio.run(bench.play()) == ["+a@3"]


def test_unexpected_failure_leads_to_a_new_list(client: ScriptedClient, caplog: pytest.LogCaptureFixture) -> None:
    client.lists += [page(version=5), page(pod("a", 6), version=6)]
    client.watches.append([ZeroDivisionError("a fault of ours")])
    assert play(client) == ["+a@6"]
    assert "unexpected failure" in caplog.text


def test_selectors_reach_the_server(client: ScriptedClient) -> None:
    client.lists.append(page(version=5))
    play(client, namespace="x", label_selector="app=a", field_selector="spec.nodeName=n")
    for _, arguments in client.calls:
        assert arguments["namespace"] == "x"
        assert arguments["label_selector"] == "app=a"
        assert arguments["field_selector"] == "spec.nodeName=n"


class History:
    """A random history of pods, and a server that tells it badly: cuts, repeats, reorders and forgets."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.live: dict[str, Pod] = {}
        self.version = 1
        self.births = 0

    def change(self) -> object:
        self.version += 1
        name = self.random.choice("abcd")
        old = self.live.get(name)
        if old is None:
            self.births += 1
            self.live[name] = pod(name, self.version, f"uid-{self.births}")
            return added(self.live[name])
        if self.random.random() < 0.4:
            del self.live[name]
            return deleted(pod(name, self.version, old.metadata.uid))
        self.live[name] = pod(name, self.version, old.metadata.uid)
        return modified(self.live[name])

    def notify(self, client: ScriptedClient) -> None:
        client.lists.append(page(*self.live.values(), version=self.version))
        for _ in range(self.random.randint(1, 6)):
            events = [self.change() for _ in range(self.random.randint(0, 6))]
            lost = self.random.random() < 0.3
            reported = [event for event in events for _ in range(self.random.choice([1, 1, 2]))]
            if self.random.random() < 0.4:
                self.random.shuffle(reported)
            client.watches.append(
                [*(reported[: self.random.randint(0, len(reported))] if lost else reported), expired() if lost else END]
            )
            if lost:
                client.lists.append(page(*self.live.values(), version=self.version))


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 1_000_000))
def test_any_telling_of_a_history_ends_in_its_state_and_is_consistent(seed: int) -> None:
    history, client = History(Random(seed)), ScriptedClient()
    history.notify(client)
    bench = Bench(client)
    known: dict[str, Pod] = {}

    def add(obj: Pod, initial: bool, /) -> None:
        assert obj.metadata.name not in known
        known[obj.metadata.name] = obj

    def update(old: Pod, new: Pod) -> None:
        assert known[new.metadata.name] is old
        assert old.metadata.uid == new.metadata.uid
        known[new.metadata.name] = new

    def delete(obj: Pod) -> None:
        assert known.pop(obj.metadata.name) is obj

    bench.informer.add_handlers(on_add=add, on_update=update, on_delete=delete)
    asyncio.run(bench.play())
    assert bench.informer.handler_errors == 0
    assert known == {obj.metadata.name: obj for obj in bench.informer.list()} == history.live
