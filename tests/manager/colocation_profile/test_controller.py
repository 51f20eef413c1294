"""The controller against the embedded API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from koordinator.api.document import Document
from koordinator.api.kinds import CLUSTER_COLOCATION_PROFILES, EVENTS, NAMESPACES, PODS
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from tests.manager.colocation_profile.controller_at_work import (
    OWN,
    PROFILE,
    ROUND,
    add_pod,
    add_profile,
    change_profile,
    labelled,
    next_round,
    outcome,
    rounds,
    run,
    until_waiting,
    working,
)
from tests.manager.colocation_profile.profiles import RESULT_ANNOTATIONS, RESULT_LABELS, SPEC, document
from tests.manager.controller_bench import ControllerBench
from tests.waiting import wait_for


def test_a_pod_that_waits_for_a_node_follows_its_profile() -> None:
    async def scenario(made: ControllerBench) -> None:
        await add_pod(made, "waiting")
        await add_pod(made, "other", {"foo": "bar"})
        await add_pod(made, "bound", nodeName="n1")
        async with working(made):
            await add_profile(made)
            found = await labelled(made, "waiting", testLabelA="valueA")
            assert (found.metadata.labels, found.metadata.annotations) == (RESULT_LABELS, RESULT_ANNOTATIONS)
            await next_round(made)
            for name in ("other", "bound"):
                assert "testLabelA" not in (await made.client.get(PODS, name, "default")).metadata.labels

    run(scenario)


def test_a_pod_that_comes_later_is_seen_to_in_the_next_round() -> None:
    async def scenario(made: ControllerBench) -> None:
        async with working(made):
            await add_profile(made)
            await add_pod(made, "late")
            await until_waiting(made, "late")
            await next_round(made)
            await labelled(made, "late", testLabelA="valueA")

    run(scenario)


def test_a_pod_that_was_seen_to_is_left_alone_until_its_time_is_over() -> None:
    async def scenario(made: ControllerBench) -> None:
        await add_pod(made, "waiting")
        async with working(made):
            await add_profile(made)
            await labelled(made, "waiting", testLabelA="valueA")
            theirs = {"metadata": {"labels": {"testLabelA": "theirs"}}}
            await made.client.patch(PODS, "waiting", theirs, PatchType.MERGE, "default")
            await until_waiting(made, "waiting", testLabelA="theirs")
            await next_round(made)
            assert outcome(made, "changed") == 1
            for _ in range(9):
                await next_round(made)
            await labelled(made, "waiting", testLabelA="valueA")
            assert outcome(made, "changed") == 2

    run(scenario)


def test_a_profile_that_changes_comes_to_the_same_pods_again() -> None:
    async def scenario(made: ControllerBench) -> None:
        await add_pod(made, "waiting")
        async with working(made):
            await add_profile(made)
            await labelled(made, "waiting", testLabelA="valueA")
            await change_profile(made, labels={"testLabelA": "valueB"})
            await labelled(made, "waiting", testLabelA="valueB")

    run(scenario)


def test_a_pod_that_is_as_it_should_be_is_not_written() -> None:
    async def scenario(made: ControllerBench) -> None:
        created = await add_pod(made, "waiting", {**OWN, "a": "b"})
        async with working(made):
            await made.client.create(
                CLUSTER_COLOCATION_PROFILES, document({"selector": SPEC["selector"], "labels": {"a": "b"}})
            )
            await wait_for(lambda: outcome(made, "unchanged") > 0)
            found = await made.client.get(PODS, "waiting", "default")
            assert found.metadata.resource_version == created.metadata.resource_version

    run(scenario)


@pytest.mark.parametrize(
    ("labels", "changes"),
    [({}, {}), (None, {"selector": None}), (None, {"probability": 0})],
    ids=["not managed", "without a selector", "with probability 0"],
)
def test_profiles_that_leave_existing_pods_alone(labels: dict[str, str] | None, changes: Document) -> None:
    async def scenario(made: ControllerBench) -> None:
        await add_pod(made, "waiting")
        await add_profile(made, labels, **changes)
        async with working(made):
            await wait_for(lambda: rounds(made) > 0)
            assert (await made.client.get(PODS, "waiting", "default")).metadata.labels == OWN

    run(scenario)


def test_by_default_means_all_profiles() -> None:
    async def scenario(made: ControllerBench) -> None:
        await add_pod(made, "waiting")
        await add_profile(made, {})
        async with working(made):
            await labelled(made, "waiting", testLabelA="valueA")

    run(scenario, reconcile_by_default=True)


def test_namespaces_are_chosen_by_their_labels() -> None:
    async def scenario(made: ControllerBench) -> None:
        await made.client.create(NAMESPACES, {"metadata": {"name": "prod", "labels": {"env": "prod"}}})
        await add_pod(made, "waiting")
        body = {"metadata": {"name": "mine", "labels": OWN}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        await made.client.create(PODS, body, "prod")
        async with working(made):
            await add_profile(made, namespaceSelector={"matchLabels": {"env": "prod"}})
            await labelled(made, "mine", testLabelA="valueA")
            assert (await made.client.get(PODS, "waiting", "default")).metadata.labels == OWN

    run(scenario)


def test_more_pods_than_may_be_changed_at_once_come_in_later_rounds() -> None:
    async def scenario(made: ControllerBench) -> None:
        for name in ("a", "b", "c"):
            await add_pod(made, name)
        async with working(made):
            await add_profile(made)
            await labelled(made, "b", testLabelA="valueA")
            await wait_for(lambda: outcome(made, "rate_limited") > 0)
            assert (await made.client.get(PODS, "c", "default")).metadata.labels == OWN
            await next_round(made)
            await labelled(made, "c", testLabelA="valueA")

    run(scenario, update_pod_qps=0.1, update_pod_qps_burst=2)


def test_a_patch_of_more_than_labels_goes_by_the_whole_pod() -> None:
    async def scenario(made: ControllerBench) -> None:
        toleration = {"key": "own", "operator": "Exists", "effect": "NoSchedule"}
        await add_pod(made, "waiting", tolerations=[toleration])
        async with working(made):
            added = {"key": "batch", "operator": "Exists"}
            await add_profile(made, patch={"metadata": {"finalizers": ["example.com/a"]}, "spec": {}})
            found = await made.once(PODS, lambda pod: bool(pod.metadata.finalizers))
            assert found.spec.tolerations[0].key == "own"
            await change_profile(made, patch={"spec": {"tolerations": [toleration, added]}})
            found = await made.once(PODS, lambda pod: any(each.key == "batch" for each in pod.spec.tolerations))
            assert found.metadata.finalizers == ["example.com/a"]

    run(scenario)


def test_what_the_server_refuses_is_reported_on_the_profile_and_not_tried_every_round() -> None:
    async def scenario(made: ControllerBench) -> None:
        await add_pod(made, "waiting")
        async with working(made):
            await add_profile(made, patch={"spec": {"containers": [{"name": "c", "command": ["other"]}]}})
            event = await made.once(EVENTS, lambda event: event.reason == "UpdatePodFailed")
            assert event.involved_object.name == PROFILE
            assert event.message.startswith("pods that could not be changed: 1, such as default/waiting: ")
            await next_round(made)
            assert outcome(made, "refused") == 1

    run(scenario)


def test_a_profile_that_cannot_be_used_is_reported() -> None:
    async def scenario(made: ControllerBench) -> None:
        await add_pod(made, "waiting")
        async with working(made):
            await add_profile(made, probability="half")
            event = await made.once(EVENTS, lambda _: True)
            assert event.reason == "InvalidProfile"
            assert "spec.probability" in event.message
            assert (await made.client.get(PODS, "waiting", "default")).metadata.labels == OWN

    run(scenario)


def failing(made: ControllerBench, error: ApiStatusError) -> None:
    """Let the first patch of a pod fail."""
    patch, errors = made.client.patch, iter([error])

    async def once(kind: Any, *arguments: Any, **more: Any) -> Any:
        if kind is PODS and (first := next(errors, None)) is not None:
            raise first
        return await patch(kind, *arguments, **more)

    made.client.patch = once  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("error", "result", "pause"),
    [
        (ApiStatusError(409, "Conflict", "changed meanwhile"), "conflict", 2),
        (ApiStatusError(404, "NotFound", "gone"), "gone", ROUND),
        (ApiStatusError(500, "InternalError", "a webhook is down"), "failed", ROUND),
    ],
)
def test_a_pod_that_could_not_be_changed_does_not_keep_others_from_it(
    error: ApiStatusError, result: str, pause: float
) -> None:
    async def scenario(made: ControllerBench) -> None:
        await add_pod(made, "a")
        await add_pod(made, "b")
        failing(made, error)
        async with working(made):
            await add_profile(made)
            await labelled(made, "b", testLabelA="valueA")
            assert outcome(made, result) == 1
            await next_round(made, pause)
            await labelled(made, "a", testLabelA="valueA")

    run(scenario)


def test_a_pod_that_changed_since_it_was_looked_at_is_not_written() -> None:
    async def scenario(made: ControllerBench) -> None:
        await add_pod(made, "waiting")
        patch, raced = made.client.patch, iter([True])

        async def race(kind: Any, name: str, *arguments: Any, **more: Any) -> Any:
            if kind is PODS and next(raced, False):
                await patch(PODS, name, {"metadata": {"labels": {"theirs": "x"}}}, PatchType.MERGE, "default")
            return await patch(kind, name, *arguments, **more)

        made.client.patch = race  # type: ignore[method-assign]
        async with working(made):
            await add_profile(made)
            await until_waiting(made, "waiting", theirs="x")
            await wait_for(lambda: outcome(made, "conflict") > 0)
            await next_round(made, 2)
            await labelled(made, "waiting", testLabelA="valueA", theirs="x")

    run(scenario)


def test_intervals_can_be_switched_off() -> None:
    async def scenario(made: ControllerBench) -> None:
        async with working(made):
            await add_profile(made)
            await wait_for(lambda: rounds(made) > 0)
            before = rounds(made)
            await made.clock.advance(3600)
            assert rounds(made) == before

    run(scenario, reconcile_interval=timedelta(0))
