"""Profiles that cannot be used, and profiles that contradict each other: nobody is blocked, the others apply, somebody
is told, and the order is always the same."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from koordinator.api.kinds import CLUSTER_COLOCATION_PROFILES, PODS
from tests.in_memory_api import Document
from tests.manager.broken_input.admission import Admission
from tests.manager.broken_input.bench import MANAGED, ManagerBench, pod

APP = {"matchLabels": {"app": "web"}}
UNUSABLE: dict[str, Document] = {
    "selector": {"selector": {"matchExpressions": [{"key": "app", "operator": "Is", "values": ["web"]}]}},
    "namespaceSelector": {"selector": APP, "namespaceSelector": {"matchLabels": {"no label": "x"}}},
    "probability": {"selector": APP, "probability": "often"},
    "probability without end": {"selector": APP, "probability": "9" * 5000 + "%"},
    "patch of another type": {"selector": APP, "patch": ["metadata"]},
    "patch of a field of another type": {"selector": APP, "patch": {"spec": {"priority": "high"}}},
    "patch with a time that never was": {
        "selector": APP,
        "patch": {"metadata": {"creationTimestamp": "0001-13-01T00:00:00+14:00"}},
    },
    "patch of a number without end": {"selector": APP, "patch": {"spec": {"priority": 10**30}}},
    "patch without a merge key": {"selector": APP, "patch": {"spec": {"containers": [{"image": "x"}]}}},
}


def profile(name: str, label: str = "", **spec: Any) -> Document:
    return {
        "metadata": {"name": name, "labels": MANAGED},
        "spec": {"selector": APP, "labels": {"chosen-by": label or name, name: "yes"}, **spec},
    }


def run(bench: ManagerBench, story: Callable[[Admission], Awaitable[None]]) -> None:
    async def scenario() -> None:
        admission = Admission(bench)
        async with bench.working(), admission.informers.started(5):
            await story(admission)

    asyncio.run(scenario())


async def labels_of_new_pod(admission: Admission) -> tuple[dict[str, str], list[str]]:
    """What a pod gets when it is created, and of what its creator is warned."""
    responses = await admission.send("pods", pod("new", labels={"app": "web"}), "CREATE")
    assert all(response["allowed"] for response in responses), responses
    patches = [change for response in responses for change in response.get("patch", ())]
    labels: dict[str, str] = {}
    for change in patches:
        if change["path"].startswith("/metadata/labels/"):
            labels[change["path"].rpartition("/")[2]] = change["value"]
        elif change["path"] == "/metadata/labels":
            labels |= change["value"]
    return labels, [warning for response in responses for warning in response.get("warnings", ())]


def labels_of_waiting_pod(bench: ManagerBench) -> dict[str, str]:
    found = bench.cluster.found(PODS, "waiting", "default")
    assert found is not None
    labels: dict[str, str] = found["metadata"]["labels"]
    return labels


def with_profiles(*profiles: Document) -> ManagerBench:
    """And a pod that waits for a node."""
    bench = ManagerBench()
    bench.cluster.put(PODS, pod("waiting", labels={"app": "web"}))
    for each in profiles:
        bench.cluster.put(CLUSTER_COLOCATION_PROFILES, each)
    return bench


@pytest.mark.parametrize("spec", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_one_that_cannot_be_used_is_reported_and_the_others_apply(spec: Document) -> None:
    bench = with_profiles(profile("good"), profile("bad", **spec))

    async def story(admission: Admission) -> None:
        labels, (warning,) = await labels_of_new_pod(admission)
        assert labels == {"chosen-by": "good", "good": "yes"}
        assert warning.startswith('ClusterColocationProfile "bad" is not applied: spec.')
        assert labels_of_waiting_pod(bench) == {"app": "web", "chosen-by": "good", "good": "yes"}
        (note,) = bench.notes("InvalidProfile", "bad")
        # Events hold a thousand characters.
        assert warning.startswith(note.removesuffix(" ..."))
        bench.cluster.put(CLUSTER_COLOCATION_PROFILES, profile("bad"))
        await bench.until_idle()
        labels, warnings = await labels_of_new_pod(admission)
        assert (labels.get("bad"), warnings) == ("yes", [])
        assert labels_of_waiting_pod(bench)["bad"] == "yes"

    run(bench, story)


def test_a_priority_class_that_is_not_there_refuses_pods_and_says_which_profile_requests_it() -> None:
    bench = with_profiles(profile("bad", priorityClassName="missing"))

    async def story(admission: Admission) -> None:
        responses = await admission.send("pods", pod("new", labels={"app": "web"}), "CREATE")
        (refusal,) = [response["status"]["message"] for response in responses if not response["allowed"]]
        assert 'PriorityClass.scheduling.k8s.io "missing" not found' in refusal
        assert 'ClusterColocationProfile "bad"' in refusal

    run(bench, story)


def test_one_that_matches_nothing_changes_nothing() -> None:
    bench = with_profiles(profile("good"), profile("idle", selector={"matchLabels": {"app": "nobody"}}))

    async def story(admission: Admission) -> None:
        assert await labels_of_new_pod(admission) == ({"chosen-by": "good", "good": "yes"}, [])
        assert labels_of_waiting_pod(bench)["chosen-by"] == "good"

    run(bench, story)


@pytest.mark.parametrize("order", list(itertools.permutations(("a", "b", "c"))))
def test_of_those_that_contradict_each_other_the_last_by_name_wins_for_new_pods(order: tuple[str, ...]) -> None:
    bench = with_profiles(*(profile(name) for name in order))

    async def story(admission: Admission) -> None:
        labels, warnings = await labels_of_new_pod(admission)
        assert labels == {"chosen-by": "c", "a": "yes", "b": "yes", "c": "yes"}
        assert warnings == []

    run(bench, story)


def test_those_that_contradict_each_other_do_not_write_existing_pods_for_ever() -> None:
    """Each comes to a pod once in five minutes, and all get their turn."""
    bench = with_profiles(profile("a"), profile("b"))

    async def story(admission: Admission) -> None:
        await bench.clock.advance(280)
        assert bench.cluster.writes["patch", "pods"] == 2
        assert {"a", "b"} <= labels_of_waiting_pod(bench).keys()

    run(bench, story)
