"""The steps of a Deployment, and what its status says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from koordinator.api.meta import Condition, ObjectMeta
from koordinator.cluster.controllers.deployment.plan import Plan, Situation, plan
from koordinator.cluster.controllers.deployment.revisions import REVISION
from koordinator.cluster.controllers.workloads import (
    Deployment,
    DeploymentCondition,
    DeploymentStatus,
    ReplicaSet,
)
from tests.cluster.controllers.objects import LABELS, NOW, ago, deployment, replica_set

_HISTORY = "deployment.kubernetes.io/revision-history"


def _plan(made: Deployment, *replica_sets: ReplicaSet, now: datetime = NOW, occupied: Sequence[str] = ()) -> Plan:
    return plan(Situation(made, replica_sets, occupied), now)


def _of_revision(name: str, number: int, replicas: int = 0, **others: Any) -> ReplicaSet:
    annotations = {REVISION: str(number), **others.pop("annotations", {})}
    return replica_set(name, replicas, annotations=annotations, **others)


def _progressing(made: Plan) -> tuple[str, str, str]:
    (found,) = (each for each in made.status.conditions if each.type == "Progressing")
    return found.status, found.reason, found.message


def _with(reason: str, status: str = "True", since: datetime = NOW, **counts: int) -> DeploymentStatus:
    condition = DeploymentCondition(
        type="Progressing", status=status, reason=reason, last_update_time=since, last_transition_time=since
    )
    return DeploymentStatus(conditions=[condition], **counts)


def test_the_first_replica_set_is_made_of_the_template() -> None:
    made = deployment(3, annotations={"team": "a", "kubectl.kubernetes.io/last-applied-configuration": "{}"})
    created = _plan(made).created
    assert created is not None
    digest = created.metadata.labels["pod-template-hash"]
    assert created.metadata.name == f"web-{digest}"
    assert created.metadata.labels == {**LABELS, "pod-template-hash": digest}
    assert created.spec.template["metadata"]["labels"] == created.metadata.labels
    assert created.spec.selector is not None
    assert created.spec.selector.match_labels == created.metadata.labels
    assert created.metadata.annotations == {
        "team": "a",
        REVISION: "1",
        "deployment.kubernetes.io/desired-replicas": "3",
        "deployment.kubernetes.io/max-replicas": "4",
    }
    assert created.spec.replicas == 3
    (owner,) = created.metadata.owner_references
    assert (owner.kind, owner.uid, owner.controller, owner.block_owner_deletion) == (
        "Deployment",
        "deployment",
        True,
        True,
    )


def test_the_template_of_the_deployment_is_left_as_it_is() -> None:
    made = deployment(3)
    _plan(made)
    assert made.spec.template["metadata"]["labels"] == LABELS


def test_a_replica_set_that_was_made_begins_the_progress() -> None:
    made = _plan(deployment(1))
    assert made.created is not None
    name = made.created.metadata.name
    assert _progressing(made) == ("True", "NewReplicaSetCreated", f'Created new replica set "{name}"')


def test_the_revision_of_the_new_one_comes_after_all_others_and_is_the_deployment_s() -> None:
    old = [_of_revision("older", 3, image="a"), _of_revision("old", 7, 1, image="b", available=1)]
    made = _plan(deployment(1), *old)
    assert made.created is not None
    assert (made.created.metadata.annotations[REVISION], made.revision) == ("8", "8")


def test_a_rollback_takes_the_old_one_up_again_under_a_new_revision() -> None:
    first = _of_revision("first", 1, image="one", annotations={_HISTORY: "0"})
    second = _of_revision("second", 2, 3, image="two", available=3)
    made = _plan(deployment(3, image="one"), first, second)
    assert made.created is None
    (after,) = (after for _, after in made.changed if after.metadata.name == "first")
    assert after.metadata.annotations[REVISION] == "3"
    assert after.metadata.annotations[_HISTORY] == "0,1"
    assert after.spec.replicas == 1


def test_nothing_is_written_once_all_is_as_wanted() -> None:
    made = deployment(3, annotations={REVISION: "1"})
    only = _of_revision("only", 1, 3, available=3)
    first = _plan(made, only)
    again = _plan(deployment(3, annotations={REVISION: "1"}, status=first.status), only)
    assert (again.created, again.changed, again.deleted, again.revision) == (None, [], [], "")
    assert again.status == first.status


def test_the_counts_of_all_replica_sets_add_up() -> None:
    old = _of_revision("old", 1, 2, image="old", available=2, terminating_replicas=1)
    new = _of_revision("new", 2, 2, available=1, terminating_replicas=2)
    status = _plan(deployment(3, surge=1, unavailable=0), old, new).status
    assert (status.replicas, status.updated_replicas, status.ready_replicas) == (4, 2, 3)
    assert (status.available_replicas, status.unavailable_replicas, status.terminating_replicas) == (3, 1, 3)


@pytest.mark.parametrize(
    ("available", "status", "reason"),
    [(1, "False", "MinimumReplicasUnavailable"), (2, "True", "MinimumReplicasAvailable")],
)
def test_it_is_available_with_the_least_number_of_pods(available: int, status: str, reason: str) -> None:
    made = _plan(deployment(3, unavailable=1), _of_revision("only", 1, 3, available=available))
    (found,) = (each for each in made.status.conditions if each.type == "Available")
    assert (found.status, found.reason) == (status, reason)


@dataclass(frozen=True)
class _Progress:
    before: DeploymentStatus
    replica_set: ReplicaSet
    expected: tuple[str, str, str]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            _Progress(
                _with("NewReplicaSetCreated"),
                _of_revision("new", 1, 2, available=1),
                ("True", "ReplicaSetUpdated", 'ReplicaSet "new" is progressing.'),
            ),
            id="another pod is available",
        ),
        pytest.param(
            _Progress(
                _with("ReplicaSetUpdated", replicas=2, updated_replicas=2, ready_replicas=1, available_replicas=1),
                _of_revision("new", 1, 2, available=2),
                ("True", "NewReplicaSetAvailable", 'ReplicaSet "new" has successfully progressed.'),
            ),
            id="all are",
        ),
        pytest.param(
            _Progress(
                _with("ReplicaSetUpdated", since=ago(601), replicas=2, updated_replicas=2),
                _of_revision("new", 1, 2),
                ("False", "ProgressDeadlineExceeded", 'ReplicaSet "new" has timed out progressing.'),
            ),
            id="none for too long",
        ),
        pytest.param(
            _Progress(
                _with("NewReplicaSetAvailable", since=ago(9999), replicas=2, updated_replicas=2),
                _of_revision("new", 1, 2),
                ("True", "NewReplicaSetAvailable", ""),
            ),
            id="pods that fail later are no matter of the rollout",
        ),
        pytest.param(
            _Progress(
                DeploymentStatus(replicas=2, updated_replicas=2),
                _of_revision("new", 1, 2),
                ("True", "FoundNewReplicaSet", 'Found new replica set "new"'),
            ),
            id="found",
        ),
    ],
)
def test_the_condition_says_how_the_rollout_goes(case: _Progress) -> None:
    made = deployment(2, status=case.before, annotations={REVISION: "1"})
    assert _progressing(_plan(made, case.replica_set)) == case.expected


def test_progress_renews_the_time_that_the_deadline_is_counted_from() -> None:
    before = _with("ReplicaSetUpdated", since=ago(500), replicas=2, updated_replicas=2)
    made = _plan(deployment(2, status=before), _of_revision("new", 1, 2, available=1))
    (found,) = (each for each in made.status.conditions if each.type == "Progressing")
    assert (found.last_update_time, found.last_transition_time) == (NOW, ago(500))
    assert made.again == 601


def test_without_a_deadline_nothing_is_said_of_progress() -> None:
    made = _plan(deployment(1, progress_deadline_seconds=None))
    assert [each.type for each in made.status.conditions] == ["Available"]
    assert made.again is None


def test_a_pause_stops_the_rollout_and_its_deadline() -> None:
    before = _with("ReplicaSetUpdated", since=ago(9999), replicas=2, updated_replicas=1)
    old, new = _of_revision("old", 1, 1, image="old"), _of_revision("new", 2, 1)
    made = _plan(deployment(2, status=before, paused=True, surge=0), old, new)
    assert _progressing(made) == ("Unknown", "DeploymentPaused", "Deployment is paused")
    assert made.again is None


def test_no_replica_set_is_made_during_a_pause() -> None:
    made = _plan(deployment(2, image="two", paused=True), _of_revision("old", 1, 2, available=2))
    assert (made.created, made.changed) == (None, [])


def test_the_deadline_begins_anew_after_a_pause() -> None:
    before = _with("DeploymentPaused", "Unknown", since=ago(9999), replicas=1, updated_replicas=1)
    made = _plan(deployment(1, status=before), _of_revision("new", 1, 1))
    assert _progressing(made) == ("Unknown", "DeploymentResumed", "Deployment is resumed")
    assert made.again == 601


def test_a_failure_of_a_replica_set_is_the_deployment_s_until_it_is_over() -> None:
    failure = Condition(type="ReplicaFailure", status="True", reason="FailedCreate", message="quota")
    failing = _plan(deployment(2), _of_revision("new", 1, 2, conditions=[failure]))
    assert [each.message for each in failing.status.conditions if each.type == "ReplicaFailure"] == ["quota"]
    over = _plan(deployment(2, status=failing.status), _of_revision("new", 1, 2))
    assert "ReplicaFailure" not in [each.type for each in over.status.conditions]


def test_the_earliest_revisions_beyond_the_limit_go_when_the_rollout_is_done() -> None:
    old = [_of_revision(f"old-{number}", number, image=f"v{number}") for number in (3, 1, 2)]
    new = _of_revision("new", 4, 1, available=1)
    done = _with("NewReplicaSetAvailable", replicas=1, updated_replicas=1, available_replicas=1)
    made = _plan(deployment(1, revision_history_limit=1, status=done), *old, new)
    assert [each.metadata.name for each in made.deleted] == ["old-1", "old-2"]


def test_a_replica_set_that_still_has_pods_is_kept() -> None:
    old = _of_revision("old", 1, 0, image="old")
    busy = _of_revision("busy", 2, 1, image="busy")
    new = _of_revision("new", 3, 1, available=1)
    done = _with("NewReplicaSetAvailable", replicas=1, updated_replicas=1, available_replicas=1)
    made = _plan(deployment(1, revision_history_limit=0, status=done, surge=1, unavailable=0), old, busy, new)
    assert "busy" not in [each.metadata.name for each in made.deleted]


def test_a_new_number_of_replicas_is_noted_on_every_replica_set_with_pods() -> None:
    noted = {"deployment.kubernetes.io/desired-replicas": "4", "deployment.kubernetes.io/max-replicas": "5"}
    old = _of_revision("old", 1, 4, image="old", available=4, annotations=noted)
    new = _of_revision("new", 2, 1, annotations=noted)
    made = _plan(deployment(5), old, new)
    desired = {after.metadata.annotations["deployment.kubernetes.io/desired-replicas"] for _, after in made.changed}
    assert (len(made.changed), desired) == (2, {"5"})


@pytest.mark.parametrize(("occupied", "is_created"), [(["old"], False), ([], True)])
def test_a_recreation_makes_the_new_one_when_the_last_old_pod_is_gone(occupied: list[str], is_created: bool) -> None:
    old = _of_revision("old", 1, 0, image="old")
    made = _plan(deployment(2, strategy="Recreate"), old, occupied=occupied)
    assert (made.created is not None) is is_created


def test_a_deployment_that_is_being_deleted_only_counts() -> None:
    leaving = Deployment(
        metadata=ObjectMeta(name="web", namespace="default", uid="d", deletion_timestamp=NOW),
        spec=deployment(3).spec,
    )
    made = _plan(leaving)
    assert (made.created, made.changed, made.deleted, made.again) == (None, [], [], None)


def test_the_next_look_is_a_second_after_the_deadline() -> None:
    before = _with("NewReplicaSetCreated", since=ago(100), replicas=1, updated_replicas=1)
    made = _plan(deployment(1, status=before), _of_revision("new", 1, 1), now=NOW + timedelta(seconds=20))
    assert made.again == 481
