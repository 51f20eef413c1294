"""A rolling update keeps to its limits in whatever order things happen, and ends."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.cluster.controllers.deployment.plan import Situation, plan
from koordinator.cluster.controllers.deployment.sizes import least_replicas, most_replicas
from koordinator.cluster.controllers.workloads import Deployment, ReplicaSet
from tests.cluster.controllers.objects import NOW, deployment, template
from tests.examples import examples


@dataclass
class _Running:
    """A ReplicaSet and its pods: True is one that is available."""

    replica_set: ReplicaSet
    pods: list[bool] = field(default_factory=list)


class _Cluster:
    """Of a Deployment whose number of replicas stays. The status of a ReplicaSet is only as new as its last report, but
    for a pod that becomes available: nobody could spare what he does not know to be there."""

    def __init__(self, made: Deployment) -> None:
        self.deployment = made
        self.running: dict[str, _Running] = {}

    def plan(self) -> bool:
        """Returns whether anything changed."""
        seen = Situation(self.deployment, [each.replica_set for each in self.running.values()], ())
        made = plan(seen, NOW)
        if made.created is not None:
            name = made.created.metadata.name
            metadata = msgspec.structs.replace(made.created.metadata, uid=name, generation=1, creation_timestamp=NOW)
            self.running[name] = _Running(msgspec.structs.replace(made.created, metadata=metadata))
        for before, after in made.changed:
            resized = before.wanted != after.wanted
            metadata = msgspec.structs.replace(after.metadata, generation=after.metadata.generation + resized)
            self.running[after.metadata.name].replica_set = msgspec.structs.replace(after, metadata=metadata)
        for each in made.deleted:
            del self.running[each.metadata.name]
        is_new = made.status != self.deployment.status
        self.deployment = msgspec.structs.replace(self.deployment, status=made.status)
        return is_new or bool(made.created or made.changed or made.deleted)

    def scale(self, running: _Running) -> None:
        """What the ReplicaSet controller does with pods: those that are not available go first."""
        wanted = running.replica_set.wanted
        if len(running.pods) > wanted:
            running.pods = sorted(running.pods)[len(running.pods) - wanted :]
        running.pods += [False] * (wanted - len(running.pods))

    def report(self, running: _Running) -> None:
        status = msgspec.structs.replace(
            running.replica_set.status,
            replicas=len(running.pods),
            ready_replicas=sum(running.pods),
            available_replicas=sum(running.pods),
            observed_generation=running.replica_set.metadata.generation,
        )
        running.replica_set = msgspec.structs.replace(running.replica_set, status=status)

    def become_available(self, running: _Running) -> None:
        if False in running.pods:
            running.pods[running.pods.index(False)] = True
            self.report(running)

    def change_template(self, image: str) -> None:
        spec = msgspec.structs.replace(self.deployment.spec, template=template(image))
        self.deployment = msgspec.structs.replace(self.deployment, spec=spec)

    def settle(self) -> None:
        for _ in range(200):
            has_changed = self.plan()
            for running in self.running.values():
                self.scale(running)
                self.become_available(running)
                before = running.replica_set.status
                self.report(running)
                has_changed |= before != running.replica_set.status
            if not has_changed:
                return
        raise AssertionError("the update does not end")

    @property
    def available(self) -> int:
        return sum(sum(each.pods) for each in self.running.values())

    @property
    def wanted(self) -> int:
        return sum(each.replica_set.wanted for each in self.running.values())


_LIMITS = st.one_of(st.integers(0, 6), st.integers(0, 100).map(lambda share: f"{share}%"))
_ACTION = st.sampled_from(("plan", "scale", "report", "ready") * 4 + ("template",))
_ACTIONS = st.lists(st.tuples(_ACTION, st.integers(0, 3)), min_size=20, max_size=80)


def _check(cluster: _Cluster) -> None:
    assert cluster.available >= least_replicas(cluster.deployment)
    assert cluster.wanted <= most_replicas(cluster.deployment)


@settings(max_examples=examples(150), deadline=None)
@given(replicas=st.integers(0, 12), surge=_LIMITS, unavailable=_LIMITS, actions=_ACTIONS)
def test_enough_pods_are_available_and_not_too_many_wanted_at_every_step(
    replicas: int, surge: int | str, unavailable: int | str, actions: list[tuple[str, int]]
) -> None:
    cluster = _Cluster(deployment(replicas, surge=surge, unavailable=unavailable))
    cluster.settle()
    cluster.change_template("two")
    for action, number in actions:
        names = sorted(cluster.running)
        running = cluster.running[names[number % len(names)]]
        if action == "plan":
            cluster.plan()
        elif action == "scale":
            cluster.scale(running)
        elif action == "report":
            cluster.report(running)
        elif action == "ready":
            cluster.become_available(running)
        else:
            cluster.change_template(f"image {number}")
        _check(cluster)


@settings(max_examples=examples(150), deadline=None)
@given(replicas=st.integers(0, 12), surge=_LIMITS, unavailable=_LIMITS, actions=_ACTIONS)
def test_it_ends_with_the_pods_of_the_last_template_alone(
    replicas: int, surge: int | str, unavailable: int | str, actions: list[tuple[str, int]]
) -> None:
    cluster = _Cluster(deployment(replicas, surge=surge, unavailable=unavailable))
    cluster.settle()
    for action, number in actions:
        if action == "template":
            cluster.change_template(f"image {number}")
        else:
            cluster.plan()
            cluster.report(next(iter(cluster.running.values())))
    cluster.change_template("last")
    cluster.settle()
    active = [each for each in cluster.running.values() if each.replica_set.wanted]
    assert [len(each.pods) for each in active] == ([replicas] if replicas else [])
    assert all(each.replica_set.spec.template["spec"]["containers"][0]["image"] == "last" for each in active)
