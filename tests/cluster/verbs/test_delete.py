from __future__ import annotations

import asyncio

import pytest

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from koordinator.cluster.verbs.delete import Deletion, delete, delete_collection
from koordinator.cluster.verbs.options import DeleteOptions, ListOptions
from koordinator.cluster.verbs.target import decode
from tests.cluster.embedded import Verbs, config_map, pod


def _delete(verbs: Verbs, plural: str, name: str, options: DeleteOptions | None = None) -> tuple[Deletion, Document]:
    target = verbs.target(plural, name)
    deletion = asyncio.run(delete(verbs.environment, target, options or DeleteOptions()))
    return deletion, decode(target.resource, deletion.stored)["metadata"]


def _bound_pod(verbs: Verbs, name: str = "p") -> Document:
    return asyncio.run(verbs.create("pods", pod(name, nodeName="n", terminationGracePeriodSeconds=30)))


def test_an_object_without_finalizers_goes_at_once() -> None:
    verbs = Verbs()
    asyncio.run(verbs.create("configmaps", config_map("c")))
    deletion, metadata = _delete(verbs, "configmaps", "c")
    assert (deletion.gone, metadata["resourceVersion"], verbs.get("configmaps", "c")) == (True, "2", None)


def test_a_finalizer_keeps_the_object_marked() -> None:
    verbs = Verbs()
    asyncio.run(verbs.create("configmaps", config_map("c", finalizers=["x.io/y"])))
    deletion, metadata = _delete(verbs, "configmaps", "c")
    assert (deletion.gone, metadata["deletionTimestamp"]) == (False, "2026-01-01T00:00:00Z")


def test_deleting_again_changes_nothing() -> None:
    verbs = Verbs()
    asyncio.run(verbs.create("configmaps", config_map("c", finalizers=["x.io/y"])))
    _delete(verbs, "configmaps", "c")
    assert _delete(verbs, "configmaps", "c")[1]["resourceVersion"] == "2"


def test_a_bound_pod_gets_its_grace_period() -> None:
    verbs = Verbs()
    _bound_pod(verbs)
    deletion, metadata = _delete(verbs, "pods", "p")
    assert not deletion.gone
    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == ("2026-01-01T00:00:30Z", 30)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (9_223_372_036, "2318-04-12T23:47:16Z"),
        (9_223_372_037, "1733-09-22T00:12:43Z"),
        (2**63 - 1, "2025-12-31T23:59:59Z"),
    ],
)
def test_a_grace_period_of_centuries_begins_anew_below_zero(seconds: int, expected: str) -> None:
    """As it does on kube-apiserver v1.35."""
    verbs = Verbs()
    _bound_pod(verbs)
    _, metadata = _delete(verbs, "pods", "p", DeleteOptions(grace_period_seconds=seconds))
    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == (expected, seconds)


def test_a_grace_period_beyond_all_time_can_be_shortened() -> None:
    verbs = Verbs()
    _bound_pod(verbs)
    _delete(verbs, "pods", "p", DeleteOptions(grace_period_seconds=2**63 - 1))
    _, metadata = _delete(verbs, "pods", "p", DeleteOptions(grace_period_seconds=4))
    assert metadata["deletionTimestamp"] == "2026-01-01T00:00:04Z"


def test_a_grace_period_is_only_ever_shortened() -> None:
    verbs = Verbs()
    _bound_pod(verbs)
    _delete(verbs, "pods", "p", DeleteOptions(grace_period_seconds=10))
    _delete(verbs, "pods", "p", DeleteOptions(grace_period_seconds=20))
    _, metadata = _delete(verbs, "pods", "p", DeleteOptions(grace_period_seconds=4))
    assert (metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"]) == ("2026-01-01T00:00:04Z", 4)


def test_grace_zero_removes_a_pod_that_waits() -> None:
    verbs = Verbs()
    _bound_pod(verbs)
    _delete(verbs, "pods", "p")
    assert _delete(verbs, "pods", "p", DeleteOptions(grace_period_seconds=0))[0].gone


def test_a_pod_without_a_node_goes_at_once() -> None:
    verbs = Verbs()
    asyncio.run(verbs.create("pods", pod("p")))
    assert _delete(verbs, "pods", "p")[0].gone


@pytest.mark.parametrize("options", [DeleteOptions(uid="other"), DeleteOptions(resource_version="77")])
def test_a_precondition_that_does_not_hold_is_a_conflict(options: DeleteOptions) -> None:
    verbs = Verbs()
    asyncio.run(verbs.create("configmaps", config_map("c")))
    with pytest.raises(ApiError, match=r"does not match the (UID|ResourceVersion) in record"):
        _delete(verbs, "configmaps", "c", options)


def test_a_dry_run_deletes_nothing() -> None:
    verbs = Verbs()
    asyncio.run(verbs.create("configmaps", config_map("c")))
    assert _delete(verbs, "configmaps", "c", DeleteOptions(dry_run=True))[0].gone
    assert verbs.get("configmaps", "c") is not None


def test_a_missing_object_is_not_found() -> None:
    with pytest.raises(ApiError, match='configmaps "c" not found'):
        _delete(Verbs(), "configmaps", "c")


def test_a_namespace_waits_for_its_contents() -> None:
    verbs = Verbs()
    asyncio.run(verbs.create("namespaces", {"metadata": {"name": "n"}}))
    assert not _delete(verbs, "namespaces", "n")[0].gone
    found = verbs.get("namespaces", "n")
    assert found is not None
    assert found["status"]["phase"] == "Terminating"


def test_a_collection_is_deleted_by_selector() -> None:
    verbs = Verbs()

    async def main() -> int:
        for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
            await verbs.create("configmaps", config_map(name, labels={"l": label}))
        target = verbs.target("configmaps")
        deleted = await delete_collection(verbs.environment, target, ListOptions(label_selector="l=x"), DeleteOptions())
        return len(deleted.items)

    assert asyncio.run(main()) == 2
    assert verbs.get("configmaps", "c") is not None


@pytest.mark.parametrize("body", [None, {}, {"gracePeriodSeconds": 5}])
def test_a_dry_run_in_the_query_counts_with_any_body(body: Document | None) -> None:
    assert DeleteOptions.parse(body, {"dryRun": "All"}).dry_run
