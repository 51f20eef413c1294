"""The counts of migrations that events keep are those that a look at everything gives."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.kinds import POD_MIGRATION_JOBS, PODS, Kind
from koordinator.api.pod import Pod
from koordinator.descheduler.migration.ledger import CLUSTER, PlannedMigrations, of_namespace, of_node, of_owner
from koordinator.kube.interface import PatchType
from tests.descheduler.migration import scene
from tests.descheduler.migration.simulated_cluster import SimulatedCluster
from tests.examples import examples

_PASSED = "descheduler.koordinator.sh/passed-arbitration"
_OWNERS = ("uid-web-1", "uid-other")
_number = st.integers(0, 3)
_step = st.one_of(
    st.tuples(st.just("pod"), _number, st.sampled_from(["node-1", "node-2"]), st.booleans(), st.booleans()),
    st.tuples(st.just("remove pod"), _number),
    st.tuples(st.just("job"), _number, _number, st.sampled_from(["", "Pending", "Running", "Failed"]), st.booleans()),
    st.tuples(st.just("remove job"), _number),
    st.tuples(st.just("deliver")),
    st.tuples(st.just("pass"), _number),
    st.tuples(st.just("wait"), st.sampled_from([1, 61])),
)


class _Bench:
    def __init__(self) -> None:
        self.cluster = SimulatedCluster()
        self.plugin = self.cluster.start()
        self.ledger, self.lister = self.plugin._ledger, self.plugin._cluster

    def take(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("pod", number, node, ready, first):
                owner = {**scene.OWNER, "uid": _OWNERS[not first]}
                scene.pod(self.cluster, f"web-{number}", node, ownerReferences=[owner])
                condition = scene.READY if ready else scene.NOT_READY
                self.cluster.change(PODS, f"default/web-{number}", conditions=[condition])
            case ("remove pod", number):
                self._remove(PODS, f"default/web-{number}")
            case ("job", number, pod, phase, passed):
                scene.job(self.cluster, f"web-{pod}", f"job-{number}", passed=passed)
                self.cluster.change(POD_MIGRATION_JOBS, f"job-{number}", phase=phase)
            case ("remove job", number):
                self._remove(POD_MIGRATION_JOBS, f"job-{number}")
            case ("pass", number):
                document = self.cluster.get_document(POD_MIGRATION_JOBS, f"job-{number}")
                if document is not None:
                    # By our own write, which informers know at once.
                    patch = {"metadata": {"annotations": {_PASSED: "true"}}}
                    name = document["metadata"]["name"]
                    asyncio.run(self.cluster.as_client.patch(POD_MIGRATION_JOBS, name, patch, PatchType.MERGE))
            case ("wait", seconds):
                asyncio.run(self.cluster.clock.advance(seconds))
            case _:
                self.cluster.deliver()

    def _remove(self, kind: Kind[Any], key: str) -> None:
        if self.cluster.get_document(kind, key) is not None:
            self.cluster.remove(kind, key)

    def expected(self, pod: Pod, scope: tuple[str, str], arbitrating: bool) -> tuple[int, int, int]:
        jobs = 0
        migrating, away = set(), set()
        for job in self.lister.jobs():
            reference = job.spec.pod_ref
            assert reference is not None
            key = f"{reference.namespace}/{reference.name}"
            is_passed = job.status.phase == "Running" or job.metadata.annotations.get(_PASSED) == "true"
            if job.status.phase == "Failed" or key == pod.metadata.key or (arbitrating and not is_passed):
                continue
            other = self.lister.pod(reference.namespace, reference.name)
            if scope in self._scopes(other):
                jobs += 1
                migrating.add(key)
        for other in self.lister.pods.list():
            ready = any(each.type == "Ready" and each.status == "True" for each in other.status.conditions)
            if not ready and scope[0] == "owner" and scope in self._scopes(other):
                away.add(other.metadata.key)
        return jobs, len(migrating), len(migrating | away)

    @staticmethod
    def _scopes(pod: Pod | None) -> list[tuple[str, str]]:
        everywhere = [CLUSTER, ("namespace", "default")]
        if pod is None:
            return everywhere
        return [*everywhere, of_node(pod), of_owner(pod.metadata.owner_references[0].uid)]


@settings(max_examples=examples(200), deadline=None)
@given(steps=st.lists(_step, max_size=25))
def test_the_counts_are_those_of_all_jobs_and_pods(steps: list[tuple[Any, ...]]) -> None:
    bench = _Bench()
    for step in steps:
        bench.take(step)
    for pod in bench.lister.pods.list():
        for scope in (CLUSTER, of_namespace(pod), of_node(pod), *map(of_owner, _OWNERS)):
            for arbitrating in (False, True):
                counts = bench.ledger.counts(scope, pod, arbitrating=arbitrating)
                assert tuple(counts) == bench.expected(pod, scope, arbitrating), (scope, arbitrating)


def test_what_is_only_planned_counts_in_its_plan_alone() -> None:
    bench = _Bench()
    for number in range(3):
        bench.take(("pod", number, "node-1", number != 1, True))
    bench.take(("deliver",))
    first, second, third = (bench.lister.pods.get(f"default/web-{number}") for number in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    planned = PlannedMigrations(bench.ledger)
    planned.add(first)
    planned.add(second)
    scope = of_owner("uid-web-1")
    assert tuple(planned.counts(scope, third, arbitrating=False)) == (2, 2, 2), "one of them was unavailable before"
    assert tuple(bench.ledger.counts(scope, third, arbitrating=False)) == (0, 0, 1)
