"""Which failures are tried again, when, and which must not be."""

from __future__ import annotations

import random
from typing import Any

import pytest

from koordinator.api import kinds
from koordinator.kube.errors import ApiStatusError, TransportError
from koordinator.kube.interface import PatchType
from koordinator.kube.sender import RetryPolicy
from tests.kube.clients import ImpatientClock, client_of, run
from tests.kube.scripted_server import ScriptedServer, Step, config_map, cut, failure, response, stream

OK = response(config_map("a"))


def tried(steps: list[Step], verb: Any, **options: Any) -> tuple[int, list[float]]:
    """Run a verb against the steps; how many requests arrived, and the pauses between them."""
    clock = ImpatientClock()

    async def work() -> int:
        async with ScriptedServer(*steps) as server, client_of(server.url, clock=clock, **options) as client:
            await verb(client)
            return len(server.received)

    return run(work()), clock.naps


def create(client: Any) -> Any:
    return client.create(kinds.CONFIG_MAPS, {}, "default")


def get(client: Any) -> Any:
    return client.get(kinds.CONFIG_MAPS, "a", "default")


@pytest.mark.parametrize("verb", [get, create])
@pytest.mark.parametrize("status", [429, 500, 503])
def test_retry_after_is_honoured_for_every_verb(verb: Any, status: int) -> None:
    requests, naps = tried([failure(status, "Busy", headers={"Retry-After": "3"}), OK], verb)
    assert requests == 2
    assert len(naps) == 1
    assert 3.0 <= naps[0] <= 3.3


@pytest.mark.parametrize("status", [429, 500, 503])
def test_without_retry_after_the_response_stands(status: int) -> None:
    with pytest.raises(ApiStatusError) as caught:
        tried([failure(status, "Busy")], get)
    assert caught.value.code == status


@pytest.mark.parametrize("status", [400, 403, 404, 409, 410, 422])
def test_what_the_caller_did_wrong_is_not_repeated(status: int) -> None:
    with pytest.raises(ApiStatusError):
        tried([failure(status, "No", headers={"Retry-After": "1"})], get)


def test_a_server_that_stays_busy_is_given_up_on() -> None:
    async def work() -> tuple[ApiStatusError, int]:
        busy = [failure(429, "TooManyRequests", headers={"Retry-After": "1"})] * 20
        async with ScriptedServer(*busy) as server, client_of(server.url) as client:
            with pytest.raises(ApiStatusError) as caught:
                await client.raw("GET", "/version")
            return caught.value, len(server.received)

    error, requests = run(work())
    assert error.is_too_many_requests
    assert error.retry_after == 1.0
    assert requests == 11


def test_a_pause_beyond_the_deadline_is_not_begun() -> None:
    with pytest.raises(ApiStatusError) as caught:
        tried([failure(429, "TooManyRequests", headers={"Retry-After": "100"})], get, timeout_seconds=60)
    assert caught.value.retry_after == 100.0


def test_the_date_form_of_retry_after_counts_as_absent() -> None:
    with pytest.raises(ApiStatusError):
        tried([failure(503, "Busy", headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"})], get)


REPEATABLE = {
    "get": get,
    "update": lambda c: c.update(kinds.CONFIG_MAPS, {}, "a", "d"),
    "delete": lambda c: c.delete(kinds.CONFIG_MAPS, "a", "d"),
    "merge patch": lambda c: c.patch(kinds.CONFIG_MAPS, "a", {}, PatchType.MERGE, "d"),
    "apply": lambda c: c.patch(kinds.CONFIG_MAPS, "a", {}, PatchType.APPLY, "d"),
}
ONCE = {
    "create": create,
    "json patch": lambda c: c.patch(kinds.CONFIG_MAPS, "a", [], PatchType.JSON, "d"),
    "raw": lambda c: c.raw("POST", "/x", b""),
}


@pytest.mark.parametrize("verb", REPEATABLE.values(), ids=REPEATABLE.keys())
def test_a_broken_connection_is_tried_again_where_that_is_harmless(verb: Any) -> None:
    requests, naps = tried([cut(), cut(b'{"half'), OK], verb)
    assert requests == 3
    assert naps
    assert all(0.1 <= nap <= 0.4 for nap in naps)


@pytest.mark.parametrize("verb", ONCE.values(), ids=ONCE.keys())
def test_what_may_have_been_applied_is_not_sent_twice(verb: Any) -> None:
    with pytest.raises(TransportError) as caught:
        tried([cut()], verb)
    assert caught.value.maybe_applied


@pytest.mark.parametrize("verb", [get, create])
def test_a_server_that_is_not_there_is_tried_again_for_every_verb(verb: Any) -> None:
    async def gone() -> str:
        async with ScriptedServer() as server:
            return server.url

    clock = ImpatientClock()

    async def work() -> TransportError:
        async with client_of(await gone(), clock=clock) as client:
            with pytest.raises(TransportError) as caught:
                await verb(client)
            return caught.value

    assert not run(work()).maybe_applied
    assert len(clock.naps) == 5


def test_a_watch_is_begun_again_when_the_server_requests_it() -> None:
    async def work() -> int:
        steps = [failure(429, "TooManyRequests", headers={"Retry-After": "1"}), stream()]
        async with ScriptedServer(*steps) as server, client_of(server.url) as client:
            assert [item async for item in client.watch(kinds.CONFIG_MAPS)] == []
            return len(server.received)

    assert run(work()) == 2


def test_every_attempt_counts_against_the_clients_own_limit() -> None:
    _, naps = tried([failure(429, "Busy", headers={"Retry-After": "0"}), OK], get, qps=1, burst=1)
    assert naps == [0.0, 1.0]


def test_back_off_doubles_to_its_ceiling() -> None:
    policy = RetryPolicy(random.Random(3), initial_backoff=1.0, max_backoff=5.0)
    error = TransportError("refused", maybe_applied=False)
    for attempts, ceiling in enumerate((1.0, 2.0, 4.0, 5.0, 5.0)):
        delay = policy.after_error(error, repeatable=False, attempts=attempts)
        assert delay is not None
        assert ceiling / 2 <= delay <= ceiling
    assert policy.after_error(error, repeatable=True, attempts=5) is None
