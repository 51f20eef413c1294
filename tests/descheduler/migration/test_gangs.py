"""Gangs that move whole: which jobs are made and let through, and what keeps all members where they are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.kinds import POD_DISRUPTION_BUDGETS, POD_GROUPS, POD_MIGRATION_JOBS, PODS, RESERVATIONS
from koordinator.api.pod import Pod
from koordinator.descheduler.framework import Refusals
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.kube.errors import ApiStatusError
from tests.descheduler.migration import scene
from tests.descheduler.migration.simulated_cluster import Fault, SimulatedCluster

_PASSED = "descheduler.koordinator.sh/passed-arbitration"
_SHARED = "descheduler.koordinator.sh/gang-migration"
_LOCAL = "pod has local storage and descheduler is not configured with evictLocalStoragePods"


class Bench:
    """The members web-0, web-1 and so on of a gang, on one node; three must run."""

    def __init__(self, members: int = 3, gang: dict[str, str] | None = None, **args: Any) -> None:
        self.cluster = SimulatedCluster()
        scene.deployment(self.cluster, 20)
        self.names = [f"web-{index}" for index in range(members)]
        for name in self.names:
            scene.member(self.cluster, name, **(gang or {}))
        whole = {"gangPolicy": "Whole", "evictBurst": 99}
        self.plugin = self.cluster.start(convert({**whole, **args}, MigrationControllerArgs))

    def ask(self, *names: str) -> None:
        """Somebody wants these members to be moved."""
        for name in names:
            scene.job(self.cluster, name, name, passed=False)
        self.arbitrate()

    def arbitrate(self) -> None:
        self.cluster.deliver()
        asyncio.run(self.plugin.arbitrator.arbitrate())

    def reconcile(self, *pods: str) -> None:
        """Look at the jobs of these members, or at all."""
        self.cluster.deliver()
        for name, job in self.jobs.items():
            if not pods or job["spec"]["podRef"]["name"] in pods:
                asyncio.run(self.plugin.controller.reconcile(name))

    def place(self, *pods: str) -> None:
        """The scheduler finds a node for the Reservations of these members."""
        for pod in pods:
            scene.schedule(self.cluster, self.job_of(pod)["metadata"]["uid"])
        self.cluster.deliver()

    @property
    def jobs(self) -> dict[str, Document]:
        return self.cluster.documents(POD_MIGRATION_JOBS)

    def job_of(self, pod: str) -> Document:
        return next(job for job in self.jobs.values() if job["spec"]["podRef"]["name"] == pod)

    def passed(self) -> list[str]:
        """The members whose jobs have been let through."""
        jobs = self.jobs.values()
        return sorted(j["spec"]["podRef"]["name"] for j in jobs if j["metadata"]["annotations"].get(_PASSED) == "true")

    def pod(self, name: str) -> Pod:
        return convert(self.cluster.documents(PODS)[f"default/{name}"], Pod)

    def refusals(self, name: str) -> Sequence[str]:
        self.cluster.deliver()
        return self.plugin.filter(self.pod(name))

    def keep(self, name: str) -> None:
        """Give a member data that it would lose."""
        document = self.cluster.documents(PODS)[f"default/{name}"]
        document["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
        self.cluster.put(PODS, document)


def test_all_members_move_when_one_has_to() -> None:
    bench = Bench()
    bench.ask("web-1")
    assert bench.passed() == bench.names
    assert len({job["metadata"]["labels"][_SHARED] for job in bench.jobs.values()}) == 1


def test_with_the_policy_of_the_original_a_member_moves_alone() -> None:
    bench = Bench(gangPolicy="Members")
    bench.ask("web-1")
    assert bench.passed() == ["web-1"]


def test_a_gang_takes_one_place_of_each_limit() -> None:
    bench = Bench(maxMigratingGlobally=1)
    scene.pod(bench.cluster, "other", "node-2")
    scene.job(bench.cluster, "other", "other")
    bench.ask("web-0", "web-1")
    assert bench.passed() == ["other"]
    bench.cluster.change(POD_MIGRATION_JOBS, "other", phase="Succeeded")
    bench.arbitrate()
    assert bench.passed() == ["other", *bench.names]


def test_a_member_that_must_not_be_moved_keeps_all() -> None:
    bench = Bench()
    bench.keep("web-2")
    bench.ask("web-0")
    status = bench.cluster.status("web-0")
    assert (status["phase"], status["reason"]) == ("Failed", "ForbiddenMigratePod")
    assert status["message"].endswith(f": gang default/training: default/web-2: {_LOCAL}")


def test_a_member_that_a_gang_can_spare_moves_alone() -> None:
    bench = Bench(4, {"mode": "NonStrict"})
    bench.ask("web-0")
    assert bench.passed() == ["web-0"]
    bench.ask("web-1")
    assert bench.passed() == ["web-0"]


def test_a_pod_group_says_how_many_members_a_gang_can_spare() -> None:
    bench = Bench(4)
    mode = {"gang.scheduling.koordinator.sh/mode": "NonStrict"}
    metadata = {"namespace": "default", "name": "training", "annotations": mode}
    bench.cluster.put(POD_GROUPS, {"metadata": metadata, "spec": {"minMember": 4}})
    bench.ask("web-0")
    assert bench.passed() == bench.names


def test_gangs_of_one_group_move_together() -> None:
    bench = Bench(gang={"groups": '["default/training", "default/serving"]'})
    scene.member(bench.cluster, "server", gang="serving")
    bench.ask("web-0")
    assert bench.passed() == ["server", *bench.names]


def test_strategies_leave_a_gang_whose_member_must_stay() -> None:
    bench = Bench()
    assert not bench.refusals("web-0")
    bench.keep("web-2")
    assert bench.refusals("web-0") == [f"gang default/training: default/web-2: {_LOCAL}"]


def test_strategies_count_a_gang_once() -> None:
    bench = Bench()
    assert asyncio.run(bench.plugin.evict(bench.pod("web-0"), "LowNodeLoad", "node is overutilized", None)).evicted
    [refusal] = bench.refusals("web-1")
    assert refusal.startswith("gang default/training: default/web-0: filterExistingPodMigrationJob: ")


def test_a_plan_counts_a_gang_once() -> None:
    bench = Bench()
    assert bench.plugin.plan_eviction(bench.pod("web-0")).evicted
    assert bench.refusals("web-1") == ["filterExistingPodMigrationJob: one is planned for this pod"]


def test_no_member_leaves_before_each_has_a_place() -> None:
    bench = Bench()
    bench.ask("web-0")
    bench.reconcile()
    bench.place("web-0", "web-1")
    bench.reconcile()
    assert not bench.cluster.evicted
    assert bench.job_of("web-0")["status"]["message"] == "waits until all members of its gang can leave"
    bench.place("web-2")
    bench.reconcile()
    bench.reconcile()
    assert len(bench.cluster.evicted) == 3


def test_the_gang_stays_when_one_member_finds_no_place() -> None:
    bench = Bench()
    bench.ask("web-0")
    bench.reconcile()
    bench.place("web-0", "web-1")
    scene.find_no_node(bench.cluster, bench.job_of("web-2")["metadata"]["uid"])
    bench.reconcile()
    bench.reconcile()
    bench.reconcile()
    reasons = {job["spec"]["podRef"]["name"]: job["status"]["reason"] for job in bench.jobs.values()}
    assert reasons == {"web-0": "GangNotMoved", "web-1": "GangNotMoved", "web-2": "Unschedulable"}
    assert (bench.cluster.evicted, list(bench.cluster.reservations())) == ([], [])


@pytest.mark.parametrize(("allowed", "evicted"), [(2, 0), (3, 3)])
def test_no_member_leaves_that_a_budget_would_part_from_the_others(allowed: int, evicted: int) -> None:
    bench = _ready(allowed)
    bench.reconcile()
    bench.reconcile()
    assert len(bench.cluster.evicted) == evicted
    messages = {condition["message"] for condition in _conditions(bench, "web-0", "GangReady", "False")}
    why = "the PodDisruptionBudget default/all allows 2 of the 3 evictions"
    assert messages == (set() if evicted else {why})


def test_once_a_member_has_left_the_others_follow_without_a_place() -> None:
    bench = _ready(3)
    bench.reconcile("web-0")
    assert len(bench.cluster.evicted) == 1
    bench.cluster.remove(RESERVATIONS, bench.job_of("web-1")["metadata"]["uid"])
    asyncio.run(bench.cluster.clock.advance(301))
    bench.reconcile()
    assert len(bench.cluster.evicted) == 3
    assert bench.job_of("web-1")["status"]["reason"] == "MissingReservation"


@pytest.mark.parametrize("code", [409, 429])
def test_a_round_that_is_interrupted_at_any_write_is_brought_to_its_end(code: int) -> None:
    """More members are on one node than may leave it at a time: those that were let through take the places."""
    writes, is_interrupted = 0, True
    while is_interrupted:
        bench = Bench()
        refused = iter([*[None] * writes, ApiStatusError(code, "Refused", "no")])
        bench.cluster.fault = _refusing(refused)
        bench.ask("web-1")
        is_interrupted = next(refused, None) is None
        bench.cluster.fault = lambda verb, path, done: None
        bench.arbitrate()
        assert bench.passed() == bench.names, f"after write {writes}"
        writes += 1
    assert writes > 6


def _interrupted(*asked: str) -> Bench:
    """Some of three jobs have been let through when the program ends."""
    bench = Bench()
    refused = chain([None] * 4, repeat(ApiStatusError(409, "Refused", "no")))
    bench.cluster.fault = _refusing(refused)
    bench.ask(*asked)
    bench.cluster.fault = lambda verb, path, done: None
    assert 0 < len(bench.passed()) < 3
    return bench


def test_who_joins_while_a_round_is_interrupted_is_not_let_through_with_the_others() -> None:
    bench = _interrupted("web-1")
    scene.member(bench.cluster, "web-3")
    bench.keep("web-3")
    bench.arbitrate()
    assert bench.passed() == bench.names


def test_a_job_that_is_paused_while_a_round_is_interrupted_stays_the_only_one_of_its_pod() -> None:
    bench = _interrupted("web-0", "web-1", "web-2")
    held = bench.job_of("web-2")
    for paused in (True, False):
        bench.cluster.put(POD_MIGRATION_JOBS, {**held, "spec": {**held["spec"], "paused": paused}})
        bench.arbitrate()
        held = bench.jobs[held["metadata"]["name"]]
    assert len(bench.jobs) == 3
    assert bench.passed() == bench.names


def test_a_job_waits_while_those_of_the_other_members_are_being_made() -> None:
    bench = Bench()
    refused = iter([None, ApiStatusError(403, "Forbidden", "no")])
    bench.cluster.fault = lambda verb, path, done: None if done or verb != "POST" else next(refused, None)
    bench.ask("web-0")
    bench.reconcile()
    bench.arbitrate()
    assert bench.passed() == bench.names


def test_a_job_that_somebody_deletes_keeps_the_gang() -> None:
    bench = _ready(0)
    bench.cluster.disruptions_allowed = None
    bench.cluster.remove(POD_MIGRATION_JOBS, bench.job_of("web-2")["metadata"]["name"])
    bench.reconcile()
    assert not bench.cluster.evicted
    assert bench.job_of("web-0")["status"]["message"].endswith("2 of its 3 PodMigrationJobs are left")


@pytest.mark.parametrize("kept", ["", "web-0", "web-19"])
def test_what_keeps_a_gang_is_found_once_for_all_members(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A strategy looks at each member of a gang on a hot node."""
    bench = Bench(20)
    if kept:
        bench.keep(kept)
    bench.cluster.deliver()
    evaluated = list[Pod]()
    evaluate = bench.plugin._member.evaluate

    def spied(pod: Pod) -> Refusals:
        evaluated.append(pod)
        return evaluate(pod)

    monkeypatch.setattr(bench.plugin._member, "evaluate", spied)
    refused = [name for name in bench.names if bench.plugin.filter(bench.pod(name))]
    assert refused == (bench.names if kept else [])
    assert len(evaluated) <= 20


def test_a_member_with_two_budgets_keeps_the_gang() -> None:
    bench = _ready(9)
    _budget(bench, "other", matchLabels={"app": "web"})
    bench.reconcile()
    assert not bench.cluster.evicted
    why = "default/web-0 has 2 PodDisruptionBudgets, and the Eviction API supports one"
    assert bench.job_of("web-0")["status"]["message"] == why


@pytest.mark.parametrize(
    ("pod", "budget"),
    [
        ({"phase": "Pending"}, {}),
        ({"conditions": [scene.NOT_READY]}, {"currentHealthy": 2, "desiredHealthy": 2}),
        ({"conditions": [scene.NOT_READY]}, {"policy": "AlwaysAllow"}),
    ],
)
def test_no_budget_need_allow_an_eviction_that_it_does_not_count(pod: Document, budget: Document) -> None:
    bench = _ready(0)
    bench.cluster.change(PODS, "default/web-2", **pod)
    document = bench.cluster.get_document(POD_DISRUPTION_BUDGETS, "default/all")
    assert document is not None
    document["spec"]["unhealthyPodEvictionPolicy"] = budget.pop("policy", "IfHealthyBudget")
    document["status"] |= {**budget, "disruptionsAllowed": 1}
    bench.cluster.put(POD_DISRUPTION_BUDGETS, document)
    bench.reconcile("web-0")
    why = "the PodDisruptionBudget default/all allows 1 of the 2 evictions"
    assert bench.job_of("web-0")["status"]["message"] == why


def test_what_must_hold_of_the_first_pod_holds_of_no_other() -> None:
    bench = Bench()
    options = {"gracePeriodSeconds": 5, "preconditions": {"resourceVersion": "7"}}
    scene.job(bench.cluster, "web-0", "web-0", passed=False, deleteOptions=options)
    bench.arbitrate()
    assert bench.job_of("web-1")["spec"]["deleteOptions"] == {"gracePeriodSeconds": 5}


def test_a_member_that_joins_the_gang_before_it_leaves_keeps_it() -> None:
    bench = _ready(9)
    scene.member(bench.cluster, "web-3")
    bench.reconcile()
    assert not bench.cluster.evicted
    status = bench.job_of("web-0")["status"]
    assert status["reason"] == "GangNotMoved"
    assert status["message"] == "Abort job because its gang cannot move whole: default/web-3 has joined it"


def test_a_job_for_a_predecessor_of_a_member_moves_nobody() -> None:
    bench = Bench()
    reference = {"namespace": "default", "name": "web-1", "uid": "predecessor"}
    scene.job(bench.cluster, "web-1", "old", passed=False, podRef=reference)
    bench.arbitrate()
    assert list(bench.jobs) == ["old"]


def test_a_job_for_a_predecessor_of_a_member_is_not_taken_for_its_own() -> None:
    bench = Bench()
    reference = {"namespace": "default", "name": "web-1", "uid": "predecessor"}
    scene.job(bench.cluster, "web-1", "old", passed=False, podRef=reference)
    bench.ask("web-0")
    marked = [job["spec"]["podRef"] for job in bench.jobs.values() if _SHARED in job["metadata"].get("labels", {})]
    assert {each["name"] for each in marked} == set(bench.names)
    assert all(each.get("uid") != "predecessor" for each in marked)


def test_a_rehearsal_says_which_pods_move() -> None:
    bench = Bench()
    for name in bench.names[:2]:
        scene.job(bench.cluster, name, f"job-of-{name}", passed=False)
    bench.cluster.deliver()
    said = "move all of gang default/training: default/web-0, default/web-1, default/web-2"
    assert sum(each.endswith(said) for each in asyncio.run(bench.plugin.intentions())) == 1
    assert not bench.cluster.writes


def _refusing(refused: Iterator[Exception | None]) -> Fault:
    """Before each write the next of these."""
    return lambda verb, path, done: None if done else next(refused, None)


def _ready(allowed: int) -> Bench:
    """All members have a place, and a budget allows some evictions."""
    bench = Bench()
    bench.cluster.disruptions_allowed = 0
    bench.ask("web-0")
    bench.reconcile()
    bench.place(*bench.names)
    bench.reconcile()
    bench.cluster.disruptions_allowed = allowed
    return bench


def _conditions(bench: Bench, pod: str, type_: str, status: str) -> list[Document]:
    found = bench.job_of(pod)["status"]["conditions"]
    return [each for each in found if (each["type"], each["status"]) == (type_, status)]


def _budget(bench: Bench, name: str, **selector: Any) -> None:
    """Another budget, which would allow everything."""
    spec, status = {"maxUnavailable": 9, "selector": selector}, {"disruptionsAllowed": 9, "observedGeneration": 1}
    bench.cluster.put(
        POD_DISRUPTION_BUDGETS,
        {"metadata": {"namespace": "default", "name": name}, "spec": spec, "status": status},
    )


def test_a_gang_is_read_once_between_events(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, reads = Bench(6, {"mode": "NonStrict"}), list[str]()
    gangs = bench.plugin._gangs
    pods_of = gangs.pods_of

    def counted(gang_id: str) -> Sequence[Pod]:
        reads.append(gang_id)
        return pods_of(gang_id)

    monkeypatch.setattr(gangs, "pods_of", counted)
    assert {gangs.of(bench.pod(name)) for name in bench.names} == {None}
    once = len(reads)
    assert once < len(bench.names)
    bench.keep("web-0")
    bench.cluster.deliver()
    assert gangs.of(bench.pod("web-1")) is None
    assert len(reads) == 2 * once
