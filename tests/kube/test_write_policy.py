"""A client that refuses writes: whoever asks, by whichever verb, nothing but reads and questions leaves it."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api import kinds
from koordinator.api.kinds import LEASES, NODES, POD_MIGRATION_JOBS, PODS, Kind
from koordinator.api.meta import ObjectReference
from koordinator.base.clock import ManualClock
from koordinator.base.metrics import Metrics
from koordinator.kube.errors import ApiStatusError, WriteRefusedError
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.interface import Client, PatchType
from koordinator.kube.leader_election import LeaderElectionConfig
from koordinator.kube.leadership import Leadership
from koordinator.kube.pod_eviction import evict
from koordinator.kube.write_policy import ReadOnly
from tests.descheduler.clusters import make_pod
from tests.in_memory_api import InMemoryApi
from tests.kube.fake_watchdog import FakeWatchdog

POLICY: Final = ReadOnly("a dry run")
PATCH: Final[dict[str, Any]] = {"metadata": {"labels": {"a": "b"}}}
NAMESPACE: Final = "/api/v1/namespaces/default"
WRITES: Final[dict[str, Callable[[Client], Awaitable[object]]]] = {
    "create nodes ": lambda client: client.create(NODES, {"metadata": {"name": "n"}}),
    "create pods/eviction default/web": lambda client: evict(client, make_pod("web", "n").metadata, {}),
    "create pods/binding default/web": lambda client: client.create(
        PODS, {}, "default", name="web", subresource="binding"
    ),
    "update leases.coordination.k8s.io kube-system/l": lambda client: client.update(LEASES, {}, "l", "kube-system"),
    "patch nodes n": lambda client: client.patch(NODES, "n", PATCH, PatchType.MERGE),
    "patch pods/status default/web": lambda client: client.patch(
        PODS, "web", PATCH, PatchType.STRATEGIC, "default", subresource="status"
    ),
    "patch podmigrationjobs.scheduling.koordinator.sh j": lambda client: client.patch(
        POD_MIGRATION_JOBS, "j", PATCH, PatchType.APPLY, field_manager="m", force=True
    ),
    "delete pods default/web": lambda client: client.delete(PODS, "web", "default", propagation_policy="Orphan"),
    "deletecollection pods default/": lambda client: client.delete_collection(PODS, "default"),
    "deletecollection nodes": lambda client: client.delete_collection(NODES),
    "update namespaces/finalize default": lambda client: client.raw(
        "PUT", "/api/v1/namespaces/default/finalize", b"{}"
    ),
    "delete namespaces default": lambda client: client.raw("DELETE", f"{NAMESPACE}?dryRun=All"),
    "POST /logs": lambda client: client.raw("POST", "/logs", b""),
}


@pytest.mark.parametrize("what", WRITES)
def test_no_write_is_sent_and_its_error_says_which_it_was(what: str) -> None:
    async def scenario() -> None:
        api = InMemoryApi(ManualClock())
        made = api.client(read_only=POLICY)
        for client in (made, made.fenced(lambda: True), made.once()):
            with pytest.raises(WriteRefusedError, match="a dry run writes nothing") as refused:
                await WRITES[what](client)
            assert f"{refused.value.verb} {refused.value.resource} {refused.value.name}".split() == what.split()
            assert what.strip() in str(refused.value)
        assert not api.requests

    asyncio.run(scenario())


def test_there_is_no_verb_that_writes_and_is_not_tried_here() -> None:
    verbs = {name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    assert verbs == {
        *("get", "list", "watch", "close", "once", "backlog", "write_through"),
        *("create", "update", "patch", "delete", "delete_collection", "raw"),
    }


SEGMENT: Final = st.text("abcdefghijklmnopqrstuvwxyz./-", min_size=1, max_size=12)


@given(
    st.sampled_from(["POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "post", ""]),
    st.one_of(SEGMENT, st.builds("/api/v1/{}".format, SEGMENT), st.builds("/apis/{}/v1/{}".format, SEGMENT, SEGMENT)),
)
def test_whatever_is_not_a_read_is_refused(method: str, target: str) -> None:
    with pytest.raises(WriteRefusedError):
        POLICY.check(method, target)


ALL_KINDS: Final = [value for value in vars(kinds).values() if isinstance(value, Kind)]


@given(st.sampled_from(ALL_KINDS), st.sampled_from(["GET", "HEAD"]))
def test_all_kinds_can_be_read(kind: Any, method: str) -> None:
    POLICY.check(method, kind.path("default" if kind.namespaced else "", "name"))


def test_reads_watches_and_questions_pass() -> None:
    async def scenario() -> None:
        api = InMemoryApi(ManualClock())
        client = api.client(read_only=POLICY)
        assert not (await client.list(NODES)).items
        with pytest.raises(ApiStatusError, match="not found"):
            await client.get(NODES, "n")
        watch = client.watch(NODES, timeout_seconds=1)
        beginning = asyncio.ensure_future(anext(watch))
        while not any(request.verb == "watch" for request in api.requests):
            await asyncio.sleep(0)
        api.put(NODES, {"metadata": {"name": "n"}})
        assert (await beginning).type == "ADDED"
        question = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
        question["spec"] = {"resourceAttributes": {"verb": "get", "resource": "pods"}}  # type: ignore[assignment]
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = json.loads(await client.raw("POST", path, json.dumps(question).encode()))
        assert answer["status"]["allowed"]

    asyncio.run(scenario())


def test_an_event_that_may_not_be_written_is_logged_and_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        clock = ManualClock()
        api = InMemoryApi(clock)
        events = EventBroadcaster(api.client(read_only=POLICY), clock=clock, random=Random(1))
        task = asyncio.create_task(events.run())
        about = ObjectReference("v1", "Pod", "default", "web")
        events.recorder("koord-descheduler").event(about, "Normal", "Evicting", "Migrating", "it leaves")
        assert await events.flush(10) == 0
        task.cancel()
        assert not api.requests

    asyncio.run(scenario())
    (line,) = [record.getMessage() for record in caplog.records]
    assert "a dry run writes nothing: create events.events.k8s.io default/" in line
    assert "Evicting of Pod default/web: it leaves" in line


def test_a_lease_is_not_taken_either() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        api = InMemoryApi(clock)
        config = LeaderElectionConfig("l", "koordinator-system", "us", release_on_cancel=True)
        leadership = Leadership(
            api.client(read_only=POLICY),
            config,
            clock=clock,
            random=Random(1),
            metrics=Metrics(),
            watchdog=FakeWatchdog(clock),
        )

        async def work() -> None:
            raise AssertionError("it leads")

        task = asyncio.create_task(leadership.run(work))
        await clock.advance(60)
        assert not task.done()
        task.cancel()
        assert not api.writes
        assert not leadership.is_leading

    asyncio.run(scenario())
