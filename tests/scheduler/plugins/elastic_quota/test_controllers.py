"""What the controllers write, evict and tell, with a writer that only notes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from koordinator.api.codec import encode, to_document
from koordinator.api.kinds import Kind
from koordinator.api.meta import ObjectMeta
from koordinator.api.modification import EVICTED, Modification
from koordinator.api.resource_names import BATCH_CPU
from koordinator.base.errors import KoordinatorError
from koordinator.scheduler.engine.binding_points import ObjectPatch
from koordinator.scheduler.features import MULTI_QUOTA_TREE
from koordinator.scheduler.plugins.elastic_quota.amounts import specification_of
from koordinator.scheduler.plugins.elastic_quota.preemption import RevokeController, to_revoke
from koordinator.scheduler.plugins.elastic_quota.status import QuotaAmounts, amounts_of, patch_of, quota_gauges
from tests.model.quota_tree.quota_objects import P, wire_quota
from tests.scheduler.fakes import describe
from tests.scheduler.ground.clusters import NOW
from tests.scheduler.plugins.coscheduling.gang_fakes import gang_annotations, with_annotations
from tests.scheduler.plugins.elastic_quota.quota_cluster import LABEL, QuotaCluster, of_quota


class StoppedError(Exception):
    """The test has seen enough."""


class NotingWriter:
    """Time passes only while a controller sleeps; after ``rounds`` of that it is stopped."""

    def __init__(self, rounds: int = 1, refuses: str = "", hangs: str = "") -> None:
        self.created: list[str] = []
        self.patches: list[ObjectPatch] = []
        self.evicted: list[str] = []
        self.warnings: list[str] = []
        self.passed = 0.0
        self.hanging = 0
        """How often what is never answered was tried."""
        self._rounds = rounds
        self._refuses = refuses
        self._hangs = hangs
        self._started: list[asyncio.Task[None]] = []

    async def patch(
        self, kind: Kind[Any], name: str, namespace: str, patch: Mapping[str, Any], subresource: str = ""
    ) -> None:
        self.patches.append(ObjectPatch(name, namespace, patch))

    def patch_each(self, kind: Kind[Any], patches: Iterable[ObjectPatch]) -> None:
        self.patches += patches

    async def until(self, condition: Callable[[], bool], seconds: float, objects: Any = None) -> bool:
        return condition()

    async def create(self, kind: Kind[Any], body: Mapping[str, Any], namespace: str) -> None:
        if body["metadata"]["name"] == self._refuses:
            raise KoordinatorError("forbidden")
        self.created.append(f"{namespace}/{body['metadata']['name']}")

    def start(self, work: Coroutine[Any, Any, None], what: str) -> None:
        self._started.append(asyncio.get_running_loop().create_task(work, name=what))

    async def evict(self, pod: ObjectMeta) -> None:
        if pod.name == self._refuses:
            raise KoordinatorError("the budget allows none")
        if pod.name == self._hangs:
            self.hanging += 1
            await asyncio.Event().wait()
        self.evicted.append(pod.name)

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self._rounds -= 1
        self.passed += seconds
        if self._rounds <= 0:
            raise StoppedError

    def monotonic(self) -> float:
        return self.passed

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.passed)

    async def delete(self, kind: Kind[Any], obj: ObjectMeta) -> None:
        raise AssertionError("controllers of quotas delete nothing")


def run(cluster: QuotaCluster, writer: NotingWriter, name: str = "ElasticQuotaController") -> None:
    for controller in cluster.plugin.controllers(writer):
        if controller.name == name:
            try:
                asyncio.run(controller.run())
            except StoppedError:
                return
    raise AssertionError(f"no controller {name}")


def current(cluster: QuotaCluster, name: str = "a") -> QuotaAmounts:
    forest = cluster.plugin.accounts.forest
    return amounts_of(forest, forest.nodes[name])


def test_the_built_in_quotas_are_created_where_they_are_missing() -> None:
    cluster, writer = QuotaCluster(), NotingWriter()
    cluster.quota(wire_quota("koordinator-default-quota", namespace="elsewhere", max={"cpu": 5}))
    run(cluster, writer)
    assert writer.created == [
        "koordinator-system/koordinator-root-quota",
        "koordinator-system/koordinator-system-quota",
    ]


def test_what_cannot_be_created_keeps_nothing_else_from_being_written() -> None:
    cluster, writer = QuotaCluster(), NotingWriter(refuses="koordinator-root-quota")
    cluster.quota(wire_quota("a", max={"cpu": 5}))
    cluster.place(of_quota("p"))
    run(cluster, writer)
    assert writer.warnings == ["quota koordinator-root-quota could not be created: forbidden"]
    assert [patch.name for patch in writer.patches] == ["a"]


def test_a_patch_says_what_has_changed_and_nothing_else() -> None:
    cluster = QuotaCluster()
    quota = wire_quota("a", max={"cpu": 5, "memory": "9Gi"}, annotations={"request": {"cpu": "1", "memory": "1Gi"}})
    cluster.quota(quota)
    cluster.place(of_quota("p"))
    assert patch_of(quota, current(cluster)) == {
        "metadata": {
            "annotations": {
                f"{P}/runtime": '{"cpu":"1","memory":"1Gi"}',
                f"{P}/child-request": '{"cpu":"1","memory":"1Gi"}',
            }
        },
        "status": {"used": {"cpu": "1", "memory": "1Gi"}},
    }


def test_an_unreadable_annotation_is_written_anew_and_what_is_gone_from_used_is_removed() -> None:
    cluster = QuotaCluster()
    quota = wire_quota("a", max={"cpu": 5}, annotations={"request": "much"}, used={"gpu": 3})
    cluster.quota(quota)
    patch = patch_of(quota, current(cluster))
    assert patch == {"metadata": {"annotations": {f"{P}/request": "{}"}}, "status": {"used": {"gpu": None}}}


def test_nothing_is_written_that_is_there_already() -> None:
    cluster = QuotaCluster()
    quota = wire_quota("a", max={"cpu": 5}, used={"cpu": 0}, annotations={"runtime": {"cpu": "0"}})
    cluster.quota(quota)
    assert patch_of(quota, current(cluster)) is None


def test_faults_are_reported_once_and_again_when_they_are_others() -> None:
    cluster, notified = QuotaCluster(), list[str]()
    cluster.plugin.handle.object_event = lambda *event: notified.append(event[-1])  # type: ignore[method-assign]
    cluster.quota(wire_quota("a", max={"cpu": 1}, min={"cpu": 2}, uid="u"))
    run(cluster, NotingWriter(rounds=3))
    assert notified == ["spec.min: cpu is 2, more than spec.max allows: it counts as 1"]


def test_a_min_above_max_is_told_of_by_the_name_that_counts() -> None:
    dated = wire_quota("a", max={"koordinator.sh/batch-cpu": 1000}, min={"koordinator.sh/batch-cpu": 2000})
    assert specification_of(dated).faults == (
        f"spec.min: {BATCH_CPU} is 2k, more than spec.max allows: it counts as 1k",
    )


def test_a_quota_names_batch_resources_alone_as_they_were_once_named() -> None:
    dated = wire_quota("a", max={"koordinator.sh/batch-cpu": 1000, "kubernetes.io/gpu": 100})
    assert set(specification_of(dated).max) == {BATCH_CPU, "kubernetes.io/gpu"}


def test_each_fault_names_field_value_and_what_counts() -> None:
    cluster = QuotaCluster()
    broken = wire_quota("a", parent="nobody", max={"cpu": 4}, min={"cpu": -1}, annotations={"shared-weight": "many"})
    cluster.quota(broken)
    negative, weight, parent = cluster.plugin.accounts.faults(broken)
    assert negative == "spec.min: cpu is negative, it has to be at least 0: it counts as 0"
    assert weight.startswith(f"metadata.annotations[{P}/shared-weight]: 'many' is no JSON object of quantities")
    assert parent == (
        f"metadata.labels[{P}/parent]: 'nobody': there is no quota nobody, the parent of a: no pod of this quota is "
        "admitted"
    )


class TestRevoke:
    def test_few_of_the_least_important_leave(self) -> None:
        pods = [(describe(of_quota(name)), {"cpu": cpu}) for name, cpu in (("vip", 4), ("large", 3), ("small", 1))]
        leaving = to_revoke({"cpu": 8}, {"cpu": 5}, pods)
        assert [pod.key for pod in leaving] == ["default/large"]

    def test_all_leave_where_not_even_that_is_enough(self) -> None:
        pods = [(describe(of_quota(name)), {"cpu": 1}) for name in ("one", "two")]
        assert len(to_revoke({"cpu": 8}, {"cpu": 5}, pods)) == 2

    def test_a_resource_that_the_last_pod_does_not_use_is_not_forgotten(self) -> None:
        pods = [(describe(of_quota("gpu")), {"cpu": 1, "gpu": 1}), (describe(of_quota("plain")), {"cpu": 1})]
        leaving = to_revoke({"cpu": 2, "gpu": 1}, {"cpu": 2, "gpu": 0}, pods)
        assert [pod.key for pod in leaving] == ["default/gpu"]

    def over_used(self, **args: Any) -> QuotaCluster:
        cluster = QuotaCluster(monitor_all_quotas=True, delay_evict_time=timedelta(seconds=2), **args)
        cluster.quota(wire_quota("a", max={"cpu": 3}))
        for name, priority in (("low", 0), ("high", 5), ("fixed", 0)):
            label = {"preemptible": "false"} if name == "fixed" else {}
            cluster.bound(of_quota(name, priority=priority, node="n0", **label), "n0")
        cluster.quota(wire_quota("a", max={"cpu": 2}))
        return cluster

    def test_only_what_lasts_is_taken_back(self) -> None:
        cluster, writer = self.over_used(), NotingWriter(rounds=3)
        run(cluster, writer, RevokeController.name)
        assert writer.evicted == []
        writer, records = NotingWriter(rounds=5), list[Modification]()
        cluster.plugin.handle.object_event = lambda *_, modification: records.append(modification)  # type: ignore[method-assign]
        run(cluster, writer, RevokeController.name)
        assert writer.evicted == ["low"]
        (record,) = records
        assert (record.action, record.actor, record.node) == (EVICTED, "ElasticQuota/a", "n0")

    def test_a_gang_with_members_of_other_quotas_stays(self) -> None:
        cluster = QuotaCluster(gang_policy="Whole", monitor_all_quotas=True, delay_evict_time=timedelta(seconds=2))
        for name, most in (("a", 2), ("b", 9)):
            cluster.quota(wire_quota(name, max={"cpu": most}))
            pod = of_quota(f"g-{name}", quota=name, node="n0")
            cluster.bound(with_annotations(pod, gang_annotations("g", 2)), "n0")
        cluster.quota(wire_quota("a", max={"cpu": 0}))
        writer = NotingWriter(rounds=5)
        run(cluster, writer, RevokeController.name)
        assert writer.evicted == []

    @pytest.mark.parametrize(("policy", "leaving"), [("Members", ["g-1"]), ("Whole", ["g-0", "g-1"])])
    def test_a_gang_that_can_spare_nobody_leaves_whole(self, policy: str, leaving: list[str]) -> None:
        cluster = QuotaCluster(gang_policy=policy, monitor_all_quotas=True, delay_evict_time=timedelta(seconds=2))
        cluster.quota(wire_quota("a", max={"cpu": 2}))
        for number, node in enumerate(("n0", "n1")):
            pod = of_quota(f"g-{number}", priority=5 - number, node=node)
            cluster.bound(with_annotations(pod, gang_annotations("g", 2)), node)
        cluster.quota(wire_quota("a", max={"cpu": 1}))
        writer = NotingWriter(rounds=5)
        run(cluster, writer, RevokeController.name)
        assert sorted(writer.evicted) == leaving

    def test_a_refused_eviction_is_reported(self) -> None:
        writer = NotingWriter(rounds=5, refuses="low")
        run(self.over_used(), writer, RevokeController.name)
        assert writer.warnings == [
            "pod default/low could not be evicted, although its quota uses more than it may: the budget allows none"
        ]

    def test_an_eviction_that_is_never_answered_delays_no_other(self) -> None:
        cluster, writer = self.over_used(), NotingWriter(rounds=9, hangs="low")
        cluster.quota(wire_quota("a", max={"cpu": 1}))
        run(cluster, writer, RevokeController.name)
        assert writer.evicted[:1] == ["high"]
        assert writer.hanging == 1, "it is under way"

    def test_who_leaves_already_is_not_told_again(self) -> None:
        cluster, writer = self.over_used(), NotingWriter(rounds=5)
        pod = of_quota("low", node="n0")
        leaving = replace(pod.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
        cluster.bound(replace(pod, metadata=leaving), "n0")
        run(cluster, writer, RevokeController.name)
        assert writer.evicted == ["high"]


def test_the_gauges_of_a_quota_go_with_it() -> None:
    cluster = QuotaCluster()
    cluster.quota(wire_quota("a", max={"cpu": 5}))
    cluster.place(of_quota("p"))
    gauges = quota_gauges(lambda: cluster.plugin.accounts)

    def samples() -> dict[str, float]:
        return {each.labels["field"]: each.value for family in gauges.collect() for each in family.samples}

    assert (samples()["used"], samples()["max"]) == (1000, 5000)
    cluster.plugin.accounts.remove_quota("kube-system/a")
    assert samples() == {}


def test_the_services_show_the_numbers_of_a_quota_and_its_pods() -> None:
    cluster = QuotaCluster()
    cluster.quota(wire_quota("a", max={"cpu": 5}))
    cluster.place(of_quota("p"))
    service = cluster.plugin.services()["/quotas/:name"]
    assert "podCache" not in service({"name": "a"})
    document = service({"name": "a", "includePods": "true"})
    assert document["podCache"] == {
        "default/p": {"isAssigned": True, "resource": document["podCache"]["default/p"]["resource"]}
    }
    assert b'"used":{"cpu":"1"}' in encode(document)


def test_the_list_of_quotas_is_of_one_tree_and_with_pods_if_it_is_requested_so() -> None:
    cluster = QuotaCluster(gates=frozenset({MULTI_QUOTA_TREE}))
    cluster.quota(wire_quota("a", max={"cpu": 5}))
    root = wire_quota("root", is_parent=True, max={"cpu": 5})
    labels = {f"{LABEL}/tree-id": "t", f"{LABEL}/is-root": "true"}
    cluster.quota(replace(root, metadata=replace(root.metadata, labels={**root.metadata.labels, **labels})))
    cluster.place(of_quota("p"))
    service = cluster.plugin.services()["/quotas"]
    assert {"a", "root"} <= service({}).keys()
    assert service({"tree": "t"}).keys() == {"root"}
    assert "podCache" not in service({})["a"]
    assert service({"includePods": "true"})["a"]["podCache"].keys() == {"default/p"}


def test_the_explanation_names_who_lends_and_who_is_next() -> None:
    cluster = QuotaCluster()
    cluster.quota(wire_quota("top", is_parent=True, max={"cpu": 10}, min={"cpu": 10}))
    for name in ("a", "b"):
        cluster.quota(wire_quota(name, parent="top", max={"cpu": 8}, min={"cpu": 4}))
    for number in range(6):
        cluster.place(of_quota(f"p{number}"))
    for name, cpu in (("large", "4"), ("small", "1")):
        cluster.state.show_pod(describe(of_quota(name, cpu=cpu)), "")
    document = to_document(cluster.plugin.services()["/quotas/:name/explanation"]({"name": "a"}))
    assert document["next"] == "default/small"
    assert document["resources"][0]["why"] == ("its min and 4 more by its weight, of the 8 that top has; it requests 8")
    assert document["siblings"][1] == {"quota": "b", "lends": "cpu:4", "borrows": ""}
