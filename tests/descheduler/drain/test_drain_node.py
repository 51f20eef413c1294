"""DrainNodes from their creation to their end, with the real migration of their pods in a simulated cluster."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from koordinator.api.document import Document, copied
from koordinator.api.kinds import DRAIN_NODES, NODES, POD_MIGRATION_JOBS, PODS, RESERVATIONS
from koordinator.api.modification import DRAINED
from koordinator.base.errors import KoordinatorError
from koordinator.descheduler.features import NODE_DRAIN
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from tests.descheduler.migration import scene
from tests.descheduler.migration.simulated_cluster import SimulatedCluster

_PLANNING = "drain.descheduler.koordinator.sh/node-planning"


class Bench:
    """node-1 with three pods of a Deployment, whose successors find free capacity on node-2."""

    reserved_cpu = "1"
    """What the Reservations hold; "" where the pods request nothing, so that their successors use none."""

    def __init__(self, **node: Any) -> None:
        self.cluster = SimulatedCluster()
        scene.deployment(self.cluster, 6)
        self.names = ["web-a", "web-b", "web-c"]
        for name in self.names:
            scene.pod(self.cluster, name)
        for name in ("node-1", "node-2"):
            self.cluster.put(NODES, {"metadata": {"name": name}, "spec": dict(node) if name == "node-1" else {}})
        self.start()
        self.has_capacity = True
        self.is_scaled_down = False
        """Whether nobody makes evicted pods anew."""

    def start(self, seed: int = 1) -> None:
        """A program that knows what the API server has."""
        args = MigrationControllerArgs(
            evict_burst=99, object_limiters={}, max_migrating_per_workload=3, max_unavailable_per_workload=3
        )
        self.plugin = self.cluster.start(args, seed, gates=frozenset({NODE_DRAIN}))

    def create(self, name: str = "drain", **spec: Any) -> None:
        self.cluster.put(DRAIN_NODES, {"metadata": {"name": name}, "spec": {"nodeName": "node-1", **spec}})

    def edit(self, name: str = "drain", *, metadata: dict[str, Any] | None = None, **spec: Any) -> None:
        document = copied(self.cluster.documents(DRAIN_NODES)[name])
        document["spec"].update(spec)
        document["metadata"].update(metadata or {})
        self.cluster.put(DRAIN_NODES, document)

    def play(self, rounds: int = 12, *, seconds: float = 3) -> None:
        """Everybody works for so many rounds."""
        for _ in range(rounds):
            self.cluster.deliver()
            for name in list(self.cluster.documents(DRAIN_NODES)):
                assert self.plugin.drain is not None
                self._work(self.plugin.drain.reconcile(name))
            self.cluster.deliver()
            self._work(self.plugin.arbitrator.arbitrate())
            self.cluster.deliver()
            for name in list(self.cluster.documents(POD_MIGRATION_JOBS)):
                self._work(self.plugin.controller.reconcile(name))
            self._others()
            asyncio.run(self.cluster.clock.advance(seconds))

    def _work(self, work: Any) -> None:
        try:
            asyncio.run(work)
        except KoordinatorError:
            """Tried again in the next round."""

    def _others(self) -> None:
        for made in list(self.cluster.reservations()):
            name = made["metadata"]["name"]
            if not made.get("status", {}).get("nodeName"):
                if self.has_capacity:
                    scene.schedule(self.cluster, name, cpu=self.reserved_cpu)
                else:
                    scene.find_no_node(self.cluster, name)
        for key, pod in list(self.cluster.documents(PODS).items()):
            if "deletionTimestamp" in pod["metadata"]:
                self.cluster.remove(PODS, key)
                self._replace(pod)

    def _replace(self, pod: Document) -> None:
        if self.is_scaled_down or not pod["metadata"].get("ownerReferences"):
            return
        successor = scene.pod(self.cluster, f"{pod['metadata']['name']}-2", "node-2")
        available = [made for made in self.cluster.reservations() if made["status"]["phase"] == "Available"]
        if available and self.reserved_cpu:
            scene.bind(self.cluster, min(available, key=_order)["metadata"]["name"], successor)

    def status(self, name: str = "drain") -> Document:
        found: Document = self.cluster.documents(DRAIN_NODES)[name].get("status", {})
        return found

    @property
    def node(self) -> Document:
        return self.cluster.documents(NODES)["node-1"]

    def pods(self, name: str = "drain") -> dict[str, tuple[str, str]]:
        """Phase and message, by the names of the pods."""
        entries = self.status(name).get("podMigrations", [])
        return {each["podName"]: (each["phase"], each.get("message", "")) for each in entries}

    def condition(self, type_: str) -> str:
        conditions = self.status()["conditions"]
        return next(str(each["status"]) for each in conditions if each["type"] == type_)


def _order(reservation: Document) -> tuple[bool, int]:
    """Schedulers use those that have an order before all others, the lowest first."""
    order = reservation["metadata"].get("labels", {}).get("scheduling.koordinator.sh/reservation-order")
    return order is None, int(order or 0)


def test_a_node_is_emptied() -> None:
    bench = Bench()
    bench.create()
    bench.play()
    assert bench.status()["phase"] == "Complete"
    assert set(bench.pods().values()) == {("Succeed", "")}
    assert bench.status()["podMigrationSummary"]["Succeed"] == 3
    assert not [pod for pod in bench.cluster.documents(PODS).values() if pod["spec"]["nodeName"] == "node-1"]
    assert bench.node["spec"]["unschedulable"] is True
    assert _PLANNING in bench.node["metadata"]["labels"]
    assert bench.condition("OnceAvailable") == "True"
    reported = [each.reason for each in bench.cluster.recorded.events if each.regarding.kind == "DrainNode"]
    assert reported[:2] == ["Initialized", "Running"]
    assert reported[-1] == "Complete"
    (record,) = [each for each in bench.cluster.recorded.records if each.action == DRAINED]
    assert (record.actor, record.node, record.numbers["podsSucceed"]) == ("DrainNode/drain", "node-1", 3.0)


def test_a_place_is_reserved_off_every_node_that_is_drained() -> None:
    bench = Bench()
    bench.create(confirmState="WaitForConfirm")
    bench.play()
    made = next(bench.cluster.reservations())
    affinity = made["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": _PLANNING, "operator": "DoesNotExist"}]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}]
    assert made["spec"]["owners"][0]["controller"]["name"] == "web-1"
    assert made["metadata"]["ownerReferences"][0]["kind"] == "DrainNode"
    assert made["spec"]["ttl"] == "86400s"


def test_nothing_is_evicted_before_the_confirmation() -> None:
    bench = Bench()
    bench.create(confirmState="WaitForConfirm")
    bench.play()
    assert {phase for phase, _ in bench.pods().values()} == {"Available"}
    assert bench.condition("OnceAvailable") == "True"
    assert not bench.cluster.evicted
    bench.edit(confirmState="Confirmed")
    bench.play()
    assert bench.status()["phase"] == "Complete"


@pytest.mark.parametrize("was_unschedulable", [False, True])
def test_a_rejected_drain_leaves_nothing_behind(was_unschedulable: bool) -> None:
    bench = Bench(**({"unschedulable": True} if was_unschedulable else {}))
    bench.create(confirmState="WaitForConfirm")
    bench.play()
    bench.edit(confirmState="Rejected")
    bench.play(3)
    assert bench.status()["phase"] == "Aborted"
    assert not list(bench.cluster.reservations())
    assert bench.node["spec"].get("unschedulable", False) is was_unschedulable
    assert _PLANNING not in bench.node["metadata"].get("labels", {})
    assert not bench.cluster.evicted


def test_no_capacity_elsewhere_leaves_the_pods_alone() -> None:
    bench = Bench()
    bench.has_capacity = False
    bench.create()
    bench.play()
    assert {phase for phase, _ in bench.pods().values()} == {"Unavailable"}
    assert bench.condition("UnavailableReservationExists") == "True"
    assert not bench.cluster.evicted
    bench.has_capacity = True
    bench.play(2, seconds=61)
    bench.play()
    assert bench.status()["phase"] == "Complete"


def test_a_disruption_budget_is_waited_for() -> None:
    bench = Bench()
    bench.cluster.disruptions_allowed = 0
    bench.create()
    bench.play()
    # Two pods of a node may migrate at a time, so the third has not come to the budget yet.
    assert sorted(bench.pods().values()) == [("Migrating", ""), *[("Migrating", "waiting for disruption budget")] * 2]
    bench.cluster.disruptions_allowed = None
    bench.play()
    assert bench.status()["phase"] == "Complete"


@pytest.mark.parametrize(
    ("metadata", "spec", "message"),
    [
        ({"ownerReferences": []}, {}, "pod has no controller, set force"),
        ({}, {"volumes": [{"name": "v", "emptyDir": {}}]}, "pod uses emptyDir, set deleteEmptyDirData"),
        ({}, {"schedulerName": "other"}, "scheduler other does not support reservations"),
        ({}, {"priority": 2_000_000_000}, "pod has system critical priority"),
    ],
)
def test_a_pod_that_must_not_be_moved_keeps_the_drain_from_its_end(
    metadata: dict[str, Any], spec: dict[str, Any], message: str
) -> None:
    bench = Bench()
    stuck = scene.pod(bench.cluster, "stuck", **metadata)
    stuck["spec"].update(spec)
    bench.cluster.put(PODS, stuck)
    bench.create()
    bench.play(16)
    assert bench.pods()["stuck"] == ("Unmigratable", message)
    assert bench.status()["phase"] == "Running"
    assert bench.condition("UnmigratablePodExists") == "True"


def test_a_pod_that_is_not_made_anew_is_waited_for_as_long_as_its_reservation_lasts() -> None:
    bench = Bench()
    for name in bench.names[1:]:
        bench.cluster.remove(PODS, f"default/{name}")
    bench.is_scaled_down = True
    bench.create()
    bench.play()
    assert bench.pods() == {"web-a": ("Migrating", "waiting for the replacement of the pod")}
    (made,) = bench.cluster.reservations()
    expired = [{"type": "Ready", "status": "False", "reason": "Expired"}]
    bench.cluster.change(RESERVATIONS, made["metadata"]["name"], phase="Failed", conditions=expired)
    bench.play(4)
    assert bench.status()["phase"] == "Complete"


def test_the_reservation_of_a_pod_that_requests_nothing_does_not_outlive_its_job() -> None:
    bench = Bench()
    bench.reserved_cpu = ""
    bench.create(confirmState="Confirmed")
    bench.play()
    assert bench.status()["phase"] == "Complete"
    assert list(bench.cluster.reservations()) == []


def test_force_evicts_what_nobody_makes_anew() -> None:
    bench = Bench()
    scene.pod(bench.cluster, "bare", ownerReferences=[])
    bench.create(force=True)
    bench.play(16)
    assert bench.status()["phase"] == "Complete"
    assert bench.pods()["bare"] == ("Succeed", "")


def test_pods_of_daemon_sets_and_of_nodes_stay() -> None:
    bench = Bench()
    scene.pod(bench.cluster, "daemon", ownerReferences=[{**scene.OWNER, "kind": "DaemonSet"}])
    scene.pod(bench.cluster, "mirror", annotations={"kubernetes.io/config.mirror": "x"})
    bench.create()
    bench.play()
    assert bench.status()["phase"] == "Complete"
    assert set(bench.pods()) == set(bench.names)


def test_pods_may_end_by_themselves_first() -> None:
    bench = Bench()
    bench.create(migrationPolicy={"mode": "WaitFirst", "waitDuration": "10m"})
    bench.play()
    assert set(bench.pods().values()) == {("Waiting", "pod may end by itself")}
    bench.play(1, seconds=600)
    bench.play()
    assert bench.status()["phase"] == "Complete"


def test_pods_of_other_kinds_of_workloads_are_moved_though_no_cycle_reads_their_scales() -> None:
    bench = Bench()
    root = "/apis/argoproj.io/v1alpha1"
    bench.cluster.scales[root] = {"resources": [{"name": "rollouts", "kind": "Rollout"}]}
    scale = {"metadata": {"uid": "c"}, "spec": {"replicas": 6}}
    bench.cluster.scales[f"{root}/namespaces/default/rollouts/c/scale"] = scale
    owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "c", "uid": "c", "controller": True}
    for name in bench.names:
        scene.pod(bench.cluster, name, ownerReferences=[owner])
    bench.create()
    bench.play(16)
    assert bench.status()["phase"] == "Complete"


def test_the_metric_of_a_drain_is_there_after_a_restart() -> None:
    bench = Bench()
    bench.create(confirmState="WaitForConfirm")
    bench.play()

    def waiting() -> float | None:
        labels = {"drain_node": "drain", "phase": "Available"}
        registry = bench.plugin.handle.metrics.registry
        return registry.get_sample_value("descheduler_drain_node_pods", labels)

    assert waiting() == 3
    bench.start(seed=2)
    assert waiting() == 3
    bench.cluster.remove(DRAIN_NODES, "drain")
    bench.cluster.deliver()
    assert waiting() is None


def test_a_clock_that_is_set_back_holds_no_drain_up() -> None:
    bench = Bench()
    bench.create(migrationPolicy={"mode": "WaitFirst", "waitDuration": "10m"})
    bench.play(4)
    bench.cluster.clock.set_wall(bench.cluster.clock.now() - timedelta(hours=3))
    bench.play(8)
    assert bench.status()["phase"] == "Complete"


def test_a_node_is_drained_once() -> None:
    bench = Bench()
    bench.create()
    bench.play(2)
    bench.create("second")
    bench.play()
    assert bench.status("second")["phase"] == "Aborted"
    assert bench.status("second")["message"] == "node already drained by drain"
    assert bench.status()["phase"] == "Complete"
    assert bench.node["spec"]["unschedulable"] is True


@pytest.mark.parametrize(
    "policy", [{"mode": "Unschedulable"}, {"mode": "Taint"}, {"mode": "Label", "labels": {"draining": "yes"}}]
)
def test_what_was_done_to_the_node_is_undone_when_the_policy_is_another_one_by_then(policy: dict[str, Any]) -> None:
    bench = Bench()
    before = copied(bench.node)
    bench.create(cordonPolicy=policy, confirmState="WaitForConfirm")
    bench.play(4)
    bench.edit(cordonPolicy={"mode": "None"})
    bench.play(1)
    bench.edit(confirmState="Aborted")
    bench.play(2)
    assert {**bench.node["spec"], **bench.node["metadata"].get("labels", {})} == before["spec"]


def test_a_drain_whose_node_is_changed_gives_the_first_one_back_and_touches_no_other() -> None:
    bench = Bench()
    bench.create(confirmState="WaitForConfirm")
    bench.play(4)
    bench.edit(nodeName="node-2")
    bench.play(3)
    assert bench.status()["phase"] == "Aborted"
    assert bench.status()["message"] == "spec.nodeName must not be changed, from node-1 to node-2"
    assert not bench.node["spec"].get("unschedulable")
    assert not list(bench.cluster.reservations())
    assert _PLANNING not in bench.cluster.documents(NODES)["node-2"]["metadata"].get("labels", {})


def test_a_drain_whose_time_is_over_is_rolled_back_and_deleted() -> None:
    bench = Bench()
    bench.create(ttl="10m", confirmState="WaitForConfirm")
    bench.play(4)
    bench.play(4, seconds=600)
    assert not bench.cluster.documents(DRAIN_NODES)
    assert not list(bench.cluster.reservations())
    assert "unschedulable" not in bench.node["spec"]


@pytest.mark.parametrize(
    ("metadata", "stays"), [({}, True), ({"drain.descheduler.koordinator.sh/clean-taint": "true"}, False)]
)
def test_what_becomes_of_a_drained_node_whose_drain_is_deleted(metadata: dict[str, str], stays: bool) -> None:
    bench = Bench()
    bench.create(cordonPolicy={"mode": "Taint"})
    bench.play()
    annotations = {**bench.cluster.documents(DRAIN_NODES)["drain"]["metadata"]["annotations"], **metadata}
    bench.edit(metadata={"deletionTimestamp": "2026-01-01T01:00:00Z", "annotations": annotations})
    bench.play(2)
    assert not bench.cluster.documents(DRAIN_NODES)
    assert bool(bench.node["spec"].get("taints")) is stays


def test_taints_of_others_are_kept_word_for_word() -> None:
    other = {"key": "maintenance", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    bench = Bench(taints=[other])
    bench.create(cordonPolicy={"mode": "Taint"}, confirmState="WaitForConfirm")
    bench.play()
    own = {"key": "drain.descheduler.koordinator.sh/drain-node", "value": "drain", "effect": "NoSchedule"}
    assert bench.node["spec"]["taints"] == [other, own]
    bench.edit(confirmState="Aborted")
    bench.play(2)
    assert bench.node["spec"]["taints"] == [other]


def test_jobs_that_fail_are_tried_again_under_other_names() -> None:
    bench = Bench()
    bench.cluster.disruptions_allowed = 0
    bench.create()
    bench.play()
    _fail_jobs(bench)
    bench.play(1)
    assert {phase for phase, _ in bench.pods().values()} == {"Failed"}
    assert bench.condition("FailedMigrationJobExists") == "True"
    bench.cluster.disruptions_allowed = None
    bench.play(2, seconds=61)
    bench.play()
    assert bench.status()["phase"] == "Complete"
    entries = bench.status()["podMigrations"]
    assert [each["podMigrationJobName"] for each in entries] == [f"drain-{each['uid'][:8]}-2" for each in entries]


def test_the_third_failure_of_a_pod_stands() -> None:
    bench = Bench()
    bench.cluster.disruptions_allowed = 0
    bench.create()
    bench.play()
    for _ in range(5):
        _fail_jobs(bench)
        bench.play(2, seconds=61)
        bench.play(4)
    assert {phase for phase, _ in bench.pods().values()} == {"Failed"}
    assert not bench.cluster.evicted
    assert bench.status()["phase"] == "Running"


def _fail_jobs(bench: Bench) -> None:
    for name in list(bench.cluster.documents(POD_MIGRATION_JOBS)):
        bench.cluster.change(POD_MIGRATION_JOBS, name, phase="Failed", reason="Unschedulable", message="no room")


def test_a_selector_that_cannot_be_read_does_not_keep_a_node_cordoned() -> None:
    bench = Bench()
    bench.create(confirmState="WaitForConfirm")
    bench.play(4)
    bench.edit(podSelector={"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]})
    bench.play(1)
    assert bench.node["spec"].get("unschedulable")
    bench.edit(confirmState="Aborted")
    bench.play(2)
    assert bench.status()["phase"] == "Aborted"
    assert not bench.node["spec"].get("unschedulable")
