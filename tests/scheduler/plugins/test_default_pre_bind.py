"""DefaultPreBind: what several plugins want of a pod arrives as one patch, before the binding."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from koordinator.api.pod import Pod
from koordinator.kube.errors import ApiStatusError
from koordinator.scheduler.engine.binding_points import (
    BindOutcome,
    BindPlugin,
    ClusterWriter,
    CycleState,
    PodChanges,
    PreBindPlugin,
)
from koordinator.scheduler.engine.columns import NodeColumns, NodeReference
from koordinator.scheduler.engine.framework import Plugin
from koordinator.scheduler.engine.pod_info import PodInfo, make_pod_info
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.default_pre_bind import DefaultPreBind, metadata_patch
from tests.in_memory_api import ApiRequest
from tests.scheduler.fakes import make_node, make_pod, make_profile
from tests.scheduler.running_scheduler import RunningScheduler, simulate
from tests.scheduler.scheduler_api import SchedulerApi


def changed_pod() -> Pod:
    pod = make_pod("p", labels={"same": "1", "gone": "1"})
    pod.metadata.annotations["kept"] = "yes"
    return pod


@pytest.mark.parametrize(
    ("changes", "patch"),
    [
        (PodChanges(labels={"new": "2"}), {"labels": {"new": "2"}}),
        (PodChanges(labels={"same": "2", "gone": None}), {"labels": {"same": "2", "gone": None}}),
        (PodChanges(labels={"same": "1"}, annotations={"kept": "no"}), {"annotations": {"kept": "no"}}),
        (PodChanges({"a": "1"}, {"b": "2"}), {"labels": {"a": "1"}, "annotations": {"b": "2"}}),
    ],
)
def test_a_patch_has_what_is_different_and_names_the_pod_by_its_uid(changes: PodChanges, patch: dict[str, Any]) -> None:
    assert metadata_patch(changed_pod().metadata, changes) == {"metadata": {"uid": "uid-p", **patch}}


def test_a_pod_that_is_as_it_should_be_needs_no_patch() -> None:
    changes = PodChanges(labels={"same": "1", "absent": None}, annotations={"kept": "yes"})
    assert metadata_patch(changed_pod().metadata, changes) is None


class Annotates(PreBindPlugin):
    """Notes the node under its own name."""

    def pre_binds(self, state: CycleState, pod: PodInfo, node: NodeReference) -> bool:
        return "plain" not in pod.pod.metadata.labels

    def class_key(self, pod: PodInfo) -> None:
        return None

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        changes.annotations[self.name] = node.name


class First(Annotates):
    name = "First"


class Second(Annotates):
    name = "Second"

    async def pre_bind(
        self, state: CycleState, pod: PodInfo, node: NodeReference, changes: PodChanges, writer: ClusterWriter
    ) -> None:
        changes.labels["after"] = changes.annotations["First"]
        await super().pre_bind(state, pod, node, changes, writer)


class PatchedApi(SchedulerApi):
    """Keeps the patches of pods themselves, and what was bound when each came; ``refuses`` them if told to."""

    def __init__(self) -> None:
        super().__init__()
        self.store(make_node("a"))
        self.patches: list[tuple[str, dict[str, Any], int]] = []
        self.refuses = False
        self.fault = self._see

    def _see(self, request: ApiRequest, done: bool) -> Exception | None:
        if done or (request.verb, request.plural, request.subresource) != ("patch", "pods", ""):
            return None
        self.patches.append((request.name, json.loads(request.body), len(self.bindings)))
        return ApiStatusError(409, "Conflict", "the UID in the precondition does not match") if self.refuses else None


class OwnBinder(BindPlugin):
    """May bind by itself, with a Binding that carries nothing, or not."""

    name = "OwnBinder"

    async def bind(self, state: CycleState, pod: PodInfo, node: NodeReference, writer: ClusterWriter) -> BindOutcome:
        return BindOutcome.SKIPPED


def profile(view: ClusterView, *kinds: type[Plugin]) -> Profile:
    base = make_profile(view)
    own = [kind(None, view) for kind in kinds or (First, Second, DefaultPreBind)]
    binders = tuple(plugin.name for plugin in own if isinstance(plugin, BindPlugin))
    order = replace(
        base.order,
        pre_bind=tuple(plugin.name for plugin in own if not isinstance(plugin, BindPlugin)),
        bind=(*binders, *base.order.bind),
    )
    return Profile(base.scheduler_name, {**base.plugins, **{plugin.name: plugin for plugin in own}}, order)


def play(api: PatchedApi, *kinds: type[Plugin], **labels: str) -> RunningScheduler:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(make_pod("p", labels=labels))
        await fixture.until_idle()

    return simulate(story, lambda: api, lambda view: profile(view, *kinds))


def test_what_all_plugins_want_arrives_in_one_patch_before_the_binding() -> None:
    api = PatchedApi()
    play(api)
    metadata = {"uid": "uid-p", "labels": {"after": "a"}, "annotations": {"First": "a", "Second": "a"}}
    assert api.patches == [("p", {"metadata": metadata}, 0)]
    assert api.bindings == [("p", "a")]


def test_a_pod_of_which_nothing_is_wanted_is_not_patched() -> None:
    api = PatchedApi()
    play(api, plain="")
    assert api.patches == []
    assert api.bindings == [("p", "a")]


def test_a_pod_that_cannot_be_patched_is_not_bound_and_says_why() -> None:
    api = PatchedApi()
    api.refuses = True
    play(api)
    assert api.bindings == []
    assert "the UID in the precondition does not match" in api.conditions[0][2]


def test_without_it_a_pod_that_needs_it_waits() -> None:
    api = PatchedApi()
    play(api, First, Second)
    assert "no plugin of the profile writes the changes of others to the pod" in api.conditions[0][2]


def test_new_annotations_go_with_the_binding() -> None:
    api = PatchedApi()
    play(api, First, DefaultPreBind)
    assert api.patches == []
    assert (api.bindings, api.pod("p").metadata.annotations) == ([("p", "a")], {"First": "a"})


def test_where_another_plugin_may_bind_new_annotations_are_a_patch_before() -> None:
    api = PatchedApi()
    play(api, First, DefaultPreBind, OwnBinder)
    assert api.patches == [("p", {"metadata": {"uid": "uid-p", "annotations": {"First": "a"}}}, 0)]


@pytest.mark.parametrize(
    ("changes", "annotations"),
    [
        (PodChanges(annotations={"new": "2", "kept": "yes"}), {"new": "2"}),
        (PodChanges(labels={"same": "1"}, annotations={"kept": "no"}), {"kept": "no"}),
        (PodChanges(labels={"new": "1"}, annotations={"new": "2"}), None),
        (PodChanges(annotations={"kept": None}), None),
        (PodChanges(annotations={"absent": None}), {}),
    ],
)
def test_a_binding_carries_new_annotations_alone(changes: PodChanges, annotations: dict[str, str] | None) -> None:
    plugin = DefaultPreBind(None, ClusterView(NodeColumns()))
    assert plugin.binding_annotations(make_pod_info(changed_pod()), changes) == annotations
