"""Whatever happens in whatever order, and wherever the program ends: a gang leaves its nodes whole or not at all.

Hypothesis chooses what the simulated scheduler, kubelet, user and budget do, how far behind the informers are, and at
which write the program crashes, before or after the write was done.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from koordinator.api.document import Document, copied
from koordinator.api.kinds import POD_MIGRATION_JOBS, PODS, RESERVATIONS
from koordinator.descheduler.migration.arguments import MigrationControllerArgs
from koordinator.model.gang_declaration import WHOLE
from tests.descheduler.migration import scene
from tests.descheduler.migration.interrupted_program import InterruptedProgram
from tests.examples import examples

_TERMINAL = ("Succeeded", "Failed", "Aborted")
_MEMBERS = ("web-0", "web-1", "web-2")
_INDEXES = st.integers(0, 2)


def _may_hinder(machine: GangMigration) -> bool:
    """Of a rule after which the gang may have to stay."""
    return machine.is_hindered


class GangMigration(InterruptedProgram):
    """A gang of three, one member of which somebody wants to be moved."""

    args = MigrationControllerArgs(evict_burst=99, gang_policy=WHOLE)

    def __init__(self) -> None:
        super().__init__()
        self.uids: set[str] = set()
        self.is_hindered = False
        """Something may happen that keeps the gang where it is."""

    @initialize(
        mode=st.sampled_from(["ReservationFirst", "EvictDirectly"]),
        jobs=st.integers(1, 2),
        prepared=st.integers(0, 3),
        is_hindered=st.booleans(),
        after=st.integers(2, 5),
    )
    def begin(self, mode: str, jobs: int, prepared: int, is_hindered: bool, after: int) -> None:
        """``prepared``: how far all members have come before anything happens; with 3 a budget alone holds them, and
        with 0 the first round ends ``after`` so many writes."""
        self.is_hindered = is_hindered
        scene.deployment(self.cluster)
        for name in _MEMBERS:
            self.uids.add(scene.member(self.cluster, name)["metadata"]["uid"])
        self.mode = mode
        for name in _MEMBERS[:jobs]:
            scene.job(self.cluster, name, name, passed=False, mode=mode)
        self.plugin = self.cluster.start(self.args)
        self.cluster.disruptions_allowed = 0
        for step in (self.work_once, self.schedule_all, self.work_once)[:prepared]:
            step()
            self.cluster.deliver()
        if prepared < 3:
            self.cluster.disruptions_allowed = None
        if prepared == 0:
            self.fail_at_a_write(after, done=False, lost=False)

    # The program.

    @rule(index=_INDEXES)
    def reconcile(self, index: int) -> None:
        found = sorted(self._jobs())
        self.run(self.plugin.controller.reconcile(found[index % len(found)]))

    @rule()
    def work_once(self) -> None:
        self.arbitrate()
        for index in range(len(self._jobs())):
            self.reconcile(index)

    @precondition(_may_hinder)
    @rule(seconds=st.sampled_from([61, 301]))
    def wait_long(self, seconds: int) -> None:
        self.wait(seconds)

    # Everybody else.

    @rule(index=_INDEXES)
    def schedule_reservation(self, index: int, node: str = "node-2") -> None:
        made = [each for each in self.cluster.reservations() if not each.get("status", {}).get("phase")]
        for each in made[index : index + 1]:
            schedule = scene.schedule if node else scene.find_no_node
            schedule(self.cluster, each["metadata"]["name"], node)

    @precondition(_may_hinder)
    @rule(index=_INDEXES, node=st.sampled_from(["node-1", ""]))
    def find_no_other_node(self, index: int, node: str) -> None:
        self.schedule_reservation(index, node)

    @rule()
    def schedule_all(self) -> None:
        for _ in range(3):
            self.schedule_reservation(0, "node-2")

    @rule(index=_INDEXES)
    def end_pod(self, index: int) -> None:
        """Kubelet ends a pod that was told to go, and the workload makes another one of the same name."""
        name = _MEMBERS[index]
        pod = self.cluster.get_document(PODS, f"default/{name}")
        if pod is not None and "deletionTimestamp" in pod["metadata"]:
            self.cluster.remove(PODS, f"default/{name}")
            scene.member(self.cluster, name, "node-2")

    @rule(allowed=st.sampled_from([None, 0, 1, 3]))
    def change_budget(self, allowed: int | None) -> None:
        self.cluster.disruptions_allowed = allowed

    @rule(index=_INDEXES, paused=st.booleans())
    def pause(self, index: int, paused: bool) -> None:
        found = sorted(self._jobs())
        job = copied(self.cluster.job(found[index % len(found)]))
        job["spec"]["paused"] = paused
        self.cluster.put(POD_MIGRATION_JOBS, job)

    @precondition(lambda self: self.is_hindered and not self.has_begun())
    @rule(index=_INDEXES)
    def abort(self, index: int) -> None:
        """In time: an abort that the program has not heard of when the first member leaves keeps one behind."""
        found = sorted(self._jobs())
        self.cluster.change(POD_MIGRATION_JOBS, found[index % len(found)], phase="Aborted")
        self.cluster.deliver()

    @precondition(_may_hinder)
    @rule(index=_INDEXES)
    def remove_reservation(self, index: int) -> None:
        for made in list(self.cluster.reservations())[index : index + 1]:
            self.cluster.remove(RESERVATIONS, made["metadata"]["name"])

    # What must hold.

    @invariant()
    def members_are_evicted_once(self) -> None:
        assert len(self.cluster.evicted) == len(set(self.cluster.evicted))
        assert set(self.cluster.evicted) <= self.uids

    @invariant()
    def none_leaves_before_there_is_a_place_for_all(self) -> None:
        if self.cluster.evicted and self.mode == "ReservationFirst":
            assert sum(map(_has_had_a_place, self._jobs().values())) >= len(_MEMBERS)

    def has_begun(self) -> bool:
        """Whether a member is about to leave."""
        key = "descheduler.koordinator.sh/evicted-pod"
        return any(key in job["metadata"].get("annotations", {}) for job in self._jobs().values())

    def _jobs(self) -> dict[str, Document]:
        return self.cluster.documents(POD_MIGRATION_JOBS)

    def finish(self) -> None:
        """With a healthy server, nobody who holds it back, and time passing."""
        self.cluster.disruptions_allowed = None
        for index in range(len(self._jobs())):
            self.pause(index, False)
        for _ in range(6):
            self.cluster.deliver()
            self.work_once()
            self.schedule_all()
        if not self.is_hindered:
            assert set(self.cluster.evicted) == self.uids, "nothing keeps the gang"
        for _ in range(6):
            self.cluster.deliver()
            self.work_once()
            self.cluster.deliver()
            self.wait_long(301)
        ends = {name: job.get("status", {}).get("phase", "") for name, job in self._jobs().items()}
        assert set(ends.values()) <= set(_TERMINAL), ends
        assert set(self.cluster.evicted) in (set(), self.uids), "the gang is left in part"
        if not self.cluster.evicted:
            assert not list(self.cluster.reservations()), "nothing is reserved for a gang that has not left"


def _has_had_a_place(job: Document) -> bool:
    conditions = job.get("status", {}).get("conditions", [])
    return any(each["type"] == "ReservationScheduled" and each["status"] == "True" for each in conditions)


TestGangMigration = GangMigration.TestCase
TestGangMigration.settings = settings(
    max_examples=examples(40), stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
