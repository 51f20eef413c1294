"""What holds for whatever ``/mutate-pod`` is sent: the steps in their order, nothing lost, nothing done twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.document import Document, copied
from koordinator.api.kinds import Kind
from koordinator.api.meta import Object
from koordinator.manager.features import make_features
from koordinator.manager.webhook.admission import ALLOWED, Operation
from koordinator.manager.webhook.pod.mutating import PodMutatingHandler, PodMutationSettings
from koordinator.manager.webhook.pod.resource_specs import ExtendedResourceSpecError
from tests.manager.webhook.small_cluster import NoQuotaTrees, SmallCluster, profile, request_for

EXTENDED_SPEC = "node.koordinator.sh/extended-resource-spec"
SHARED = "koordinator.sh/gpu.shared"
TEXTS = st.sampled_from(["a", "b", "c"])
LABELS = st.dictionaries(TEXTS, TEXTS, max_size=3)
AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "koordinator.sh/gpu", "koordinator.sh/gpu-core", "example.com/x"]),
    st.sampled_from(["1", "100", "200", "500m"]),
)
RESOURCES = st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})
UNKNOWN: Document = {"spec": {"unknownField": {"kept": [1, None, {"a": "b"}]}}, "unknownTop": True}
CONTAINERS = st.lists(RESOURCES, min_size=1, max_size=3).map(
    lambda found: [{"name": f"c{at}", "unknown": at, "resources": each} for at, each in enumerate(found)]
)
PODS = st.builds(
    lambda labels, containers, priority: {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "labels": labels, "unknown": {"x": None}},
        "spec": {"containers": containers, "priority": priority, **UNKNOWN["spec"]},
        "unknownTop": True,
    },
    LABELS,
    CONTAINERS,
    st.sampled_from([None, 9500, 7500, 5500, 3500]),
)
SELECTORS = st.none() | st.fixed_dictionaries({"matchLabels": LABELS})
SPECS: st.SearchStrategy[Document] = st.fixed_dictionaries(
    {},
    optional={
        "selector": SELECTORS,
        "labels": LABELS.map(lambda found: {f"new-{key}": value for key, value in found.items()}),
        "annotations": LABELS,
        "qosClass": st.sampled_from(["BE", "LS"]),
        "priorityClassName": st.sampled_from(["koordinator-batch", "koordinator-prod"]),
        "koordinatorPriority": st.integers(0, 9999),
        "schedulerName": TEXTS,
        "patch": st.fixed_dictionaries({"metadata": st.fixed_dictionaries({"annotations": LABELS})}),
    },
)


def profiles_of(specs: list[Document]) -> list[Document]:
    return [profile(f"p{at}", **spec) for at, spec in enumerate(specs)]


PROFILES = st.lists(SPECS, max_size=3).map(profiles_of)


def mutated(pod: Document, *profiles: Document) -> Document:
    response = PodMutatingHandler(SmallCluster(*profiles), NoQuotaTrees(), lambda: 0).handle(request_for(pod))
    assert response.allowed
    return pod if response.changed is None else dict(response.changed)


@given(PODS, PROFILES)
def test_what_is_not_known_survives(pod: Document, profiles: list[Document]) -> None:
    changed = mutated(pod, *profiles)
    assert changed["unknownTop"] is True
    assert changed["metadata"]["unknown"] == {"x": None}
    assert changed["spec"]["unknownField"] == UNKNOWN["spec"]["unknownField"]
    assert [each["unknown"] for each in changed["spec"]["containers"]] == list(
        range(len(changed["spec"]["containers"]))
    )


@given(PODS, PROFILES)
def test_the_pod_that_was_queried_about_stays_as_it_was(pod: Document, profiles: list[Document]) -> None:
    before = copied(pod)
    mutated(pod, *profiles)
    assert pod == before


@given(PODS, PROFILES)
def test_profiles_that_add_no_suffixes_and_choose_the_same_again_change_nothing_more(
    pod: Document, profiles: list[Document]
) -> None:
    once = mutated(pod, *profiles)
    assert mutated(once, *profiles) == once


@given(PODS, PROFILES)
def test_native_resources_stay_exactly_where_their_class_has_no_others(pod: Document, profiles: list[Document]) -> None:
    changed = mutated(pod, *profiles)
    for before, after in zip(pod["spec"]["containers"], changed["spec"]["containers"], strict=True):
        for part, amounts in before["resources"].items():
            names = after["resources"][part]
            for native in ("cpu", "memory"):
                renamed = [name for name in names if name.endswith(f"-{native}") and name.startswith("kubernetes.io/")]
                # What only the limits name is requested, too, where it is renamed.
                of_limits = part == "requests" and bool(renamed) and native in before["resources"].get("limits", {})
                assert (native in names) + len(renamed) == (native in amounts or of_limits)


def test_the_steps_follow_each_other() -> None:
    gpu = {"koordinator.sh/gpu": "200", "cpu": "2"}
    pod: Document = {
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "resources": {"requests": gpu, "limits": gpu}}]},
    }
    changed = mutated(pod, profile(priorityClassName="koordinator-batch"))
    wanted = {
        "kubernetes.io/batch-cpu": "2k",
        "koordinator.sh/gpu-core": "200",
        "koordinator.sh/gpu-memory-ratio": "200",
        SHARED: "2",
    }
    assert changed["spec"]["containers"][0]["resources"] == {"requests": wanted, "limits": wanted}
    assert '"kubernetes.io/batch-cpu":"2k"' in changed["metadata"]["annotations"][EXTENDED_SPEC]


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE"])
def test_updates_pass_as_they_are(operation: Operation) -> None:
    handler = PodMutatingHandler(SmallCluster(profile(labels={"a": "b"})), NoQuotaTrees(), lambda: 0)
    pod: Document = {"metadata": {"name": "a"}, "spec": {}}
    assert handler.handle(request_for(pod, operation, pod)) is ALLOWED


def test_a_pod_without_a_namespace_stays_without_one() -> None:
    changed = mutated({"metadata": {"name": "a"}, "spec": {}}, profile(labels={"a": "b"}))
    assert changed["metadata"] == {"name": "a", "labels": {"a": "b"}}


def test_feature_gates_choose_the_steps() -> None:
    gates = make_features()
    assert PodMutationSettings.from_gates(gates) == PodMutationSettings()
    gates.set(
        {
            "ColocationProfileSkipMutatingResources": True,
            "DisableExtendedResourceSpec": True,
            "DisableDeviceResourceSpec": True,
            "MultiQuotaTree": True,
            "FreeResource": True,
        }
    )
    assert PodMutationSettings.from_gates(gates) == PodMutationSettings(
        translate_resources=False,
        translate_free=True,
        record_extended_resources=False,
        quota_tree_affinity=True,
        normalise_device_resources=False,
    )


def test_steps_that_are_switched_off_do_nothing() -> None:
    batch_and_gpu = {"kubernetes.io/batch-cpu": "1k", "koordinator.sh/gpu": "100"}
    pod: Document = {
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"containers": [{"name": "main", "resources": {"requests": batch_and_gpu}}]},
    }
    settings = PodMutationSettings(record_extended_resources=False, normalise_device_resources=False)
    handler = PodMutatingHandler(SmallCluster(), NoQuotaTrees(), lambda: 0, settings)
    assert handler.handle(request_for(pod)).changed is None


class Log:
    def __init__(self) -> None:
        self.steps: list[str] = []

    @contextmanager
    def step(self, operation: Operation, plugin: str) -> Iterator[None]:
        status = "rejected"
        try:
            yield
            status = "allowed"
        finally:
            self.steps.append(f"{operation} {plugin} {status}")


def test_every_step_can_be_measured() -> None:
    log = Log()
    handler = PodMutatingHandler(SmallCluster(), NoQuotaTrees(), lambda: 0, steps=log)
    handler.handle(request_for({"metadata": {"name": "a"}, "spec": {}}))
    names = ("ClusterColocationProfile", "ExtendedResourceSpec", "MultiQuotaTree", "DeviceResourceSpec")
    assert log.steps == [f"CREATE {name} allowed" for name in names]


def test_a_step_that_refuses_is_the_last() -> None:
    log = Log()
    handler = PodMutatingHandler(SmallCluster(), NoQuotaTrees(), lambda: 0, steps=log)
    with pytest.raises(ExtendedResourceSpecError):
        handler.handle(request_for({"metadata": {"name": "a", "annotations": {EXTENDED_SPEC: "{"}}, "spec": {}}))
    assert log.steps == ["CREATE ClusterColocationProfile allowed", "CREATE ExtendedResourceSpec rejected"]


def test_who_is_told_of_applied_profiles_hears_nothing_of_dry_runs_and_of_those_not_drawn() -> None:
    told: list[tuple[list[str], str]] = []

    def note(kind: Kind[Any], profiles: Sequence[Object], namespace: str) -> None:
        told.append(([f"{kind.name} {each.metadata.name}" for each in profiles], namespace))

    cluster = SmallCluster(profile("always", labels={"a": "b"}), profile("never", probability="1%", labels={"c": "d"}))
    handler = PodMutatingHandler(cluster, NoQuotaTrees(), lambda: 50, on_applied=note)
    request = request_for({"metadata": {"name": "web", "namespace": "shop"}, "spec": {}})
    handler.handle(replace(request, dry_run=True))
    handler.handle(request)
    assert told == [(["ClusterColocationProfile always"], "shop")]
    cluster = SmallCluster(profile("never", probability="1%", labels={"c": "d"}))
    PodMutatingHandler(cluster, NoQuotaTrees(), lambda: 50, on_applied=note).handle(request)
    assert len(told) == 1
