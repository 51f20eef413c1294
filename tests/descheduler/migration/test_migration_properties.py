"""Whatever happens in whatever order, and wherever the program ends: a job ends once, and evicts its pod at most once.

Hypothesis chooses what the simulated scheduler, kubelet, workload, user and budget do, how far behind the informers
are, and at which write the program crashes, before or after the write was done.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from koordinator.api.document import copied
from koordinator.api.kinds import POD_MIGRATION_JOBS, PODS, RESERVATIONS
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from tests.descheduler.migration import scene
from tests.descheduler.migration.interrupted_program import InterruptedProgram
from tests.examples import examples

TERMINAL = ("Succeeded", "Failed", "Aborted")
_POD = "default/web-0"


class Migration(InterruptedProgram):
    """One job for the pod web-0 of a workload that gives its pods their old names back."""

    args = MigrationControllerArgs(evict_burst=99)

    def __init__(self) -> None:
        super().__init__()
        self.ended_as = ""
        self.pod_uid = ""

    @initialize(mode=st.sampled_from(["ReservationFirst", "EvictDirectly"]), named_uid=st.booleans())
    def begin(self, mode: str, named_uid: bool) -> None:
        scene.deployment(self.cluster)
        self.pod_uid = scene.pod(self.cluster, "web-0")["metadata"]["uid"]
        reference = {"namespace": "default", "name": "web-0"} | ({"uid": self.pod_uid} if named_uid else {})
        self.mode = mode
        scene.job(self.cluster, "web-0", passed=False, mode=mode, podRef=reference)
        self.plugin = self.cluster.start(self.args)

    # The program.

    @rule()
    def work_once(self) -> None:
        self.run(self.plugin.controller.reconcile("job"))

    @rule(seconds=st.sampled_from([61, 301]))
    def wait_long(self, seconds: int) -> None:
        self.wait(seconds)

    # Everybody else.

    @rule(node=st.sampled_from(["node-1", "node-2", ""]))
    def schedule_reservation(self, node: str) -> None:
        for made in list(self.cluster.reservations()):
            if not made.get("status", {}).get("nodeName"):
                schedule = scene.schedule if node else scene.find_no_node
                schedule(self.cluster, made["metadata"]["name"], node)

    @rule()
    def end_pod(self) -> None:
        """Kubelet ends a pod that was told to go, and the workload makes another one of the same name."""
        pod = self.cluster.get_document(PODS, _POD)
        if pod is not None and "deletionTimestamp" in pod["metadata"]:
            self.cluster.remove(PODS, _POD)
            scene.pod(self.cluster, "web-0", "node-2")

    @rule()
    def delete_pod(self) -> None:
        """Somebody else deletes the pod."""
        self.cluster.remove(PODS, _POD)
        scene.pod(self.cluster, "web-0", "node-2")

    @rule()
    def bind(self) -> None:
        pod = self.cluster.get_document(PODS, _POD)
        assert pod is not None
        for made in list(self.cluster.reservations()):
            if pod["metadata"]["uid"] != self.pod_uid and made.get("status", {}).get("phase") == "Available":
                scene.bind(self.cluster, made["metadata"]["name"], pod)

    @rule(ready=st.booleans())
    def become(self, ready: bool) -> None:
        self.cluster.change(PODS, _POD, conditions=[scene.READY if ready else scene.NOT_READY])

    @rule(allowed=st.sampled_from([None, 0, 1]))
    def change_budget(self, allowed: int | None) -> None:
        self.cluster.disruptions_allowed = allowed

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        job = copied(self.cluster.job())
        job["spec"]["paused"] = paused
        self.cluster.put(POD_MIGRATION_JOBS, job)

    @precondition(lambda self: not self.ended_as)
    @rule()
    def abort(self) -> None:
        self.cluster.change(POD_MIGRATION_JOBS, "job", phase="Aborted")

    @rule()
    def remove_reservation(self) -> None:
        for made in list(self.cluster.reservations()):
            self.cluster.remove(RESERVATIONS, made["metadata"]["name"])

    # What must hold.

    @invariant()
    def only_the_pod_of_the_job_is_evicted_and_once(self) -> None:
        assert self.cluster.evicted in ([], [self._uid_of_the_job()])

    @invariant()
    def the_job_ends_once(self) -> None:
        phase = self.cluster.status().get("phase", "")
        assert not self.ended_as or phase == self.ended_as
        if phase in TERMINAL:
            self.ended_as = phase

    @invariant()
    def capacity_comes_first(self) -> None:
        if self.mode == "ReservationFirst" and self.cluster.evicted:
            created = [path for verb, path in self.cluster.writes if verb == "POST" and "reservations" in path]
            evicted = [path for verb, path in self.cluster.writes if path.endswith("/eviction")]
            assert self.cluster.writes.index(("POST", created[0])) < self.cluster.writes.index(("POST", evicted[0]))

    def _uid_of_the_job(self) -> str:
        uid: str = self.cluster.job()["spec"]["podRef"].get("uid", "")
        return uid

    def finish(self) -> None:
        """With a healthy server, nobody who holds it back, and time passing."""
        self.pause(False)
        for _ in range(3):
            self.cluster.deliver()
            self.arbitrate()
            self.cluster.deliver()
            self.work_once()
            self.cluster.deliver()
            self.wait(301)
        assert self.cluster.status()["phase"] in TERMINAL
        pod = self.cluster.get_document(PODS, _POD)
        assert pod is not None
        stays = pod["metadata"]["uid"] == self.pod_uid and "deletionTimestamp" not in pod["metadata"]
        if self.cluster.status()["phase"] != "Succeeded" and stays:
            assert not list(self.cluster.reservations()), "nothing is reserved for a pod that has not left"
        self.only_the_pod_of_the_job_is_evicted_and_once()


TestMigration = Migration.TestCase
TestMigration.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
