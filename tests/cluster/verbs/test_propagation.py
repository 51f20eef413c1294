"""What a deletion says of an object's dependents: the finalizers ``orphan`` and ``foregroundDeletion``."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.document import Document
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.errors import ApiError
from koordinator.cluster.verbs.delete import FOREGROUND, ORPHAN, delete, delete_collection, finalizers_for
from koordinator.cluster.verbs.options import DeleteOptions, ListOptions
from tests.cluster.embedded import Verbs, config_map, pod

POLICIES: Final = ("", "Background", "Foreground", "Orphan")


def _deleted(verbs: Verbs, name: str, options: DeleteOptions) -> Document | None:
    """The metadata of the ConfigMap afterwards."""
    asyncio.run(delete(verbs.environment, verbs.target("configmaps", name), options))
    left = verbs.get("configmaps", name)
    return left["metadata"] if left is not None else None


@pytest.mark.parametrize(
    ("options", "finalizers"),
    [
        (DeleteOptions(propagation_policy="Orphan"), ["orphan"]),
        (DeleteOptions(propagation_policy="Foreground"), ["foregroundDeletion"]),
        (DeleteOptions(orphan_dependents=True), ["orphan"]),
    ],
)
def test_an_object_waits_for_the_garbage_collector(options: DeleteOptions, finalizers: list[str]) -> None:
    verbs = Verbs()
    asyncio.run(verbs.create("configmaps", config_map("c")))
    metadata = _deleted(verbs, "c", options)
    assert metadata is not None
    assert metadata["finalizers"] == finalizers
    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == ("2026-01-01T00:00:00Z", 0)


@pytest.mark.parametrize(
    "options", [DeleteOptions(), DeleteOptions(propagation_policy="Background"), DeleteOptions(orphan_dependents=False)]
)
def test_it_does_not_where_that_is_not_asked_for(options: DeleteOptions) -> None:
    verbs = Verbs()
    asyncio.run(verbs.create("configmaps", config_map("c")))
    assert _deleted(verbs, "c", options) is None


def test_a_later_request_may_choose_otherwise() -> None:
    verbs = Verbs()
    asyncio.run(verbs.create("configmaps", config_map("c")))
    first = _deleted(verbs, "c", DeleteOptions(propagation_policy="Foreground"))
    second = _deleted(verbs, "c", DeleteOptions(propagation_policy="Orphan"))
    assert first is not None
    assert second is not None
    assert second["finalizers"] == ["orphan"]
    assert second["deletionTimestamp"] == first["deletionTimestamp"]
    assert _deleted(verbs, "c", DeleteOptions(propagation_policy="Background")) is None


def test_a_trial_changes_nothing() -> None:
    verbs = Verbs()
    asyncio.run(verbs.create("configmaps", config_map("c")))
    metadata = _deleted(verbs, "c", DeleteOptions(propagation_policy="Orphan", dry_run=True))
    assert metadata is not None
    assert metadata["resourceVersion"] == "1"


@pytest.mark.parametrize("options", [DeleteOptions(uid="other"), DeleteOptions(resource_version="9")])
def test_neither_does_a_request_whose_precondition_does_not_hold(options: DeleteOptions) -> None:
    verbs = Verbs()
    asyncio.run(verbs.create("configmaps", config_map("c")))
    with pytest.raises(ApiError, match="precondition"):
        _deleted(verbs, "c", replace(options, propagation_policy="Orphan"))


def test_each_of_a_collection_waits() -> None:
    verbs = Verbs()
    for name in ("a", "b"):
        asyncio.run(verbs.create("configmaps", config_map(name)))
    options = DeleteOptions(propagation_policy="Orphan")
    asyncio.run(delete_collection(verbs.environment, verbs.target("configmaps"), ListOptions(), options))
    left = [verbs.get("configmaps", name) for name in ("a", "b")]
    assert [each["metadata"]["finalizers"] for each in left if each is not None] == [["orphan"], ["orphan"]]


def test_the_grace_period_of_a_pod_stays() -> None:
    verbs = Verbs()
    asyncio.run(verbs.create("pods", pod("p", nodeName="n", terminationGracePeriodSeconds=30)))
    target = verbs.target("pods", "p")
    asyncio.run(delete(verbs.environment, target, DeleteOptions(propagation_policy="Foreground")))
    left = verbs.get("pods", "p")
    assert left is not None
    assert left["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30


@given(
    st.sampled_from(BUILTIN_RESOURCES),
    st.lists(st.sampled_from((ORPHAN, FOREGROUND, "x.io/a", "x.io/b")), unique=True),
    st.one_of(
        st.builds(DeleteOptions, propagation_policy=st.sampled_from(POLICIES)),
        st.builds(DeleteOptions, orphan_dependents=st.booleans()),
    ),
)
def test_finalizers_of_others_stay_and_there_is_one_of_ours_at_most(
    resource: object, present: list[str], options: DeleteOptions
) -> None:
    obj: Document = {"metadata": {"finalizers": present}}
    after = finalizers_for(resource, obj, options)  # type: ignore[arg-type]
    ours = {ORPHAN, FOREGROUND}
    assert [each for each in after if each not in ours] == [each for each in present if each not in ours]
    is_event = getattr(resource, "plural", "") == "events"
    assert is_event or len(ours & set(after)) <= 1
    if not is_event and options.propagation_policy:
        wanted = {"Orphan": {ORPHAN}, "Foreground": {FOREGROUND}, "Background": set()}[options.propagation_policy]
        assert ours & set(after) == wanted
    again = finalizers_for(resource, {"metadata": {"finalizers": after}}, options)  # type: ignore[arg-type]
    assert again == after
