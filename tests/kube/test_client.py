"""Each verb on the wire: what is sent, and what becomes of the responses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koordinator.api import kinds
from koordinator.api.core import ConfigMap
from koordinator.api.meta import ObjectMeta
from koordinator.base.clock import ManualClock
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import ApiStatusError, MalformedObjectError, TransportError
from koordinator.kube.interface import Client, ListPage, PatchType
from tests.kube.clients import client_of, run
from tests.kube.listing import list_all
from tests.kube.scripted_server import (
    Received,
    ScriptedServer,
    Step,
    config_map,
    cut,
    failure,
    list_document,
    response,
    silence,
)


def exchange(step: Step, verb: Any, **options: Any) -> tuple[Any, Received]:
    """Run one verb against one step; its result and what the server received."""

    async def work() -> tuple[Any, Received]:
        async with ScriptedServer(step) as server, client_of(server.url, **options) as client:
            return await verb(client), server.received[0]

    return run(work())


def test_the_client_is_what_every_loop_requests() -> None:
    client: type[Client] = KubeClient
    assert client is KubeClient


def test_get_decodes_the_object() -> None:
    got, received = exchange(
        response(config_map("a", data={"x": "1"})), lambda c: c.get(kinds.CONFIG_MAPS, "a", "default")
    )
    assert (got.metadata.name, got.data) == ("a", {"x": "1"})
    assert (received.method, received.target) == ("GET", "/api/v1/namespaces/default/configmaps/a")


def test_headers_name_the_program_and_json() -> None:
    _, received = exchange(
        response(config_map("a")), lambda c: c.get(kinds.CONFIG_MAPS, "a", "d"), user_agent="koord-test/1 (linux/amd64)"
    )
    assert received.headers["User-Agent"] == "koord-test/1 (linux/amd64)"
    assert received.headers["Accept"] == "application/json"


def test_the_servers_path_is_kept() -> None:
    async def work() -> str:
        async with ScriptedServer(response(b"ok")) as server, client_of(server.url + "/clusters/one/") as client:
            await client.raw("GET", "/version")
            return server.received[0].target

    assert run(work()) == "/clusters/one/version"


def test_names_cannot_change_the_path() -> None:
    _, received = exchange(response(config_map("a")), lambda c: c.get(kinds.CONFIG_MAPS, "a/../b?x", "d"))
    assert received.target == "/api/v1/namespaces/d/configmaps/a%2F..%2Fb%3Fx"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_names_that_mean_another_path_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        exchange(response({}), lambda c: c.delete(kinds.CONFIG_MAPS, name, "default"))


def test_failures_carry_the_status() -> None:
    with pytest.raises(ApiStatusError, match='configmaps "a" not found') as caught:
        exchange(
            failure(404, "NotFound", 'configmaps "a" not found'), lambda c: c.get(kinds.CONFIG_MAPS, "a", "default")
        )
    assert caught.value.is_not_found


def test_failures_without_a_status_quote_the_body() -> None:
    with pytest.raises(ApiStatusError, match=r"bad gateway page \(502"):
        exchange(response(b"bad gateway page", 502), lambda c: c.raw("GET", "/version"))


@pytest.mark.parametrize(("reason", "conflict"), [("AlreadyExists", False), ("Conflict", True)])
def test_the_two_kinds_of_409_differ(reason: str, conflict: bool) -> None:
    with pytest.raises(ApiStatusError) as caught:
        exchange(failure(409, reason), lambda c: c.create(kinds.CONFIG_MAPS, {}, "default"))
    assert (caught.value.is_conflict, caught.value.is_already_exists) == (conflict, not conflict)


def test_an_object_that_is_not_of_its_kind_is_named() -> None:
    with pytest.raises(MalformedObjectError, match=r"ConfigMap .*\$\.data"):
        exchange(response(config_map("a", data="text")), lambda c: c.get(kinds.CONFIG_MAPS, "a", "default"))


def test_list_sends_selectors_and_paging() -> None:
    page, received = exchange(
        response(list_document(config_map("a"), version="7", token="next")),
        lambda c: c.list(
            kinds.CONFIG_MAPS, label_selector="a in (b,c)", field_selector="x=y", limit=5, continue_token="t"
        ),
    )
    assert received.target.startswith("/api/v1/configmaps?")
    assert "labelSelector=a+in+%28b%2Cc%29&fieldSelector=x%3Dy&limit=5&continue=t" in received.target
    assert (page.resource_version, page.continue_token, len(page.items)) == ("7", "next", 1)


def test_list_of_nothing_may_be_null() -> None:
    page, _ = exchange(response({"metadata": {}, "items": None}), lambda c: c.list(kinds.CONFIG_MAPS))
    assert page.items == []


def test_one_malformed_object_does_not_cost_the_list() -> None:
    bad = config_map("bad", "5", data={"x": 1})
    page, _ = exchange(
        response(list_document(config_map("a"), bad, config_map("b"))), lambda c: c.list(kinds.CONFIG_MAPS)
    )
    assert [item.metadata.name for item in page.items] == ["a", "b"]
    (malformed,) = page.malformed
    assert (malformed.name, malformed.namespace, malformed.uid, malformed.resource_version) == (
        "bad",
        "default",
        "uid-bad",
        "5",
    )
    assert "$.data" in malformed.error


def test_a_malformed_pod_tells_where_it_is_as_far_as_that_can_be_read() -> None:
    odd = {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"nodeName": "a", "containers": 5}}
    texts = odd | {"spec": {"nodeName": {"x": 1}, "containers": 5}, "status": {"phase": "Running"}}
    page, _ = exchange(response(list_document(odd, texts)), lambda c: c.list(kinds.PODS))
    assert [(each.node_name, each.phase) for each in page.malformed] == [("a", ""), ("", "Running")]


def test_long_list_in_slices_is_the_same_list_and_lets_others_go_on() -> None:
    items = [config_map(f"item-{number}", data={"x": "x" * 1000}) for number in range(100)]
    items[50] = config_map("bad", "5", data={"x": 1})
    rounds = 0

    async def work() -> tuple[ListPage[ConfigMap], ListPage[ConfigMap], int]:
        async def count() -> None:
            nonlocal rounds
            while True:
                rounds += 1
                await asyncio.sleep(0)

        text = response(list_document(*items, version="12", token="more"))
        async with ScriptedServer(text, text) as server:
            async with client_of(server.url) as client:
                whole = await client.list(kinds.CONFIG_MAPS)
            async with client_of(server.url, lists_in_slices=True) as client:
                counting = asyncio.create_task(count())
                sliced = await client.list(kinds.CONFIG_MAPS)
                counting.cancel()
        return whole, sliced, rounds

    whole, sliced, rounds = run(work())
    assert sliced == whole
    assert len(sliced.items) == 99
    assert rounds > 5


def test_list_that_is_no_list_is_a_transport_error() -> None:
    with pytest.raises(TransportError, match="not a list"):
        exchange(response(b"<html>"), lambda c: c.list(kinds.CONFIG_MAPS))


def list_pages(*steps: Step, limit: int = 2) -> tuple[list[str], list[str]]:
    async def work() -> tuple[list[str], list[str]]:
        async with ScriptedServer(*steps) as server, client_of(server.url) as client:
            page = await list_all(client, kinds.CONFIG_MAPS, limit=limit)
            assert server.remaining == 0
            return [item.metadata.name for item in page.items], [received.target for received in server.received]

    return run(work())


def test_list_all_follows_the_pages() -> None:
    names, targets = list_pages(
        response(list_document(config_map("a"), token="t1")), response(list_document(config_map("b")))
    )
    assert names == ["a", "b"]
    assert targets[1].endswith("?limit=2&continue=t1")


def test_list_all_begins_again_when_its_token_expires() -> None:
    names, _ = list_pages(
        response(list_document(config_map("old"), token="t1")),
        failure(410, "Expired"),
        response(list_document(config_map("a"))),
    )
    assert names == ["a"]


def test_list_all_requests_one_piece_when_tokens_keep_expiring() -> None:
    expiring = [response(list_document(config_map("old"), token="t")), failure(410, "Expired")] * 3
    names, targets = list_pages(*expiring, response(list_document(config_map("a"))))
    assert names == ["a"]
    assert targets[-1] == "/api/v1/configmaps"


def test_create_fills_in_the_kind() -> None:
    _, received = exchange(
        response(config_map("a"), 201),
        lambda c: c.create(kinds.CONFIG_MAPS, ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "1"}), "default"),
    )
    assert received.method == "POST"
    assert received.document == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "data": {"x": "1"},
    }


def test_create_of_a_subresource_may_respond_with_a_status() -> None:
    body = b'{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}'
    bound, received = exchange(
        response({"kind": "Status", "apiVersion": "v1", "status": "Success"}, 201),
        lambda c: c.create(kinds.PODS, body, "default", name="p", subresource="binding"),
    )
    assert bound.kind == "Status"
    assert (received.target, received.body) == ("/api/v1/namespaces/default/pods/p/binding", body)


def test_update_puts_the_object() -> None:
    _, received = exchange(
        response(config_map("a")),
        lambda c: c.update(kinds.CONFIG_MAPS, config_map("a", "3"), "a", "default", subresource="status"),
    )
    assert (received.method, received.target) == ("PUT", "/api/v1/namespaces/default/configmaps/a/status")
    assert received.document["metadata"]["resourceVersion"] == "3"


@pytest.mark.parametrize("patch_type", list(PatchType))
def test_patch_types_are_media_types(patch_type: PatchType) -> None:
    _, received = exchange(
        response(config_map("a")),
        lambda c: c.patch(kinds.CONFIG_MAPS, "a", b"[]", patch_type, "d", field_manager="me", force=True),
    )
    assert received.headers["Content-Type"] == patch_type.value
    assert received.target == "/api/v1/namespaces/d/configmaps/a?fieldManager=me&force=true"


def test_patch_sends_exactly_what_it_is_given() -> None:
    _, received = exchange(
        response(config_map("a")),
        lambda c: c.patch(kinds.CONFIG_MAPS, "a", {"data": {"x": None}}, PatchType.MERGE, "d"),
    )
    assert received.document == {"data": {"x": None}}


def test_delete_sends_its_preconditions() -> None:
    _, received = exchange(
        response({"kind": "Status", "status": "Success"}),
        lambda c: c.delete(
            kinds.CONFIG_MAPS,
            "a",
            "d",
            uid="u",
            resource_version="4",
            grace_period_seconds=0,
            propagation_policy="Orphan",
        ),
    )
    assert received.document == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "4"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Orphan",
    }


def test_delete_collection_selects() -> None:
    _, received = exchange(
        response(list_document()), lambda c: c.delete_collection(kinds.CONFIG_MAPS, "d", label_selector="a=b")
    )
    assert (received.method, received.target) == ("DELETE", "/api/v1/namespaces/d/configmaps?labelSelector=a%3Db")


def test_a_response_that_breaks_off_is_a_transport_error() -> None:
    with pytest.raises(TransportError) as caught:
        exchange(cut(b'{"apiVersion"'), lambda c: c.create(kinds.CONFIG_MAPS, {}, "d"))
    assert caught.value.maybe_applied


def test_no_response_ends_at_the_deadline() -> None:
    async def work() -> TransportError:
        reached, clock = asyncio.Event(), ManualClock()
        async with (
            ScriptedServer(silence(reached)) as server,
            client_of(server.url, clock=clock, timeout_seconds=30) as client,
        ):
            async with asyncio.TaskGroup() as group:
                call = group.create_task(caught(client.create(kinds.CONFIG_MAPS, {}, "d")))
                await reached.wait()
                await clock.advance(31)
            return call.result()

    error = run(work())
    assert error.timed_out
    assert "POST /api/v1/namespaces/d/configmaps: no response within 30 s" in str(error)


async def caught(work: Any) -> TransportError:
    with pytest.raises(TransportError) as info:
        await work
    return info.value


def test_cancelling_a_call_stays_a_cancellation() -> None:
    async def work() -> bool:
        reached = asyncio.Event()
        async with ScriptedServer(silence(reached)) as server, client_of(server.url) as client:
            async with asyncio.TaskGroup() as group:
                call = group.create_task(client.raw("GET", "/version"))
                await reached.wait()
                call.cancel()
            return call.cancelled()

    assert run(work())


def test_many_requests_share_connections() -> None:
    async def work() -> int:
        steps = [response(b"{}") for _ in range(200)]
        async with ScriptedServer(*steps) as server, client_of(server.url, max_connections=8) as client:
            await asyncio.gather(*(client.raw("GET", "/version") for _ in range(200)))
            return server.connections

    assert run(work()) <= 8
