"""The condition of abnormal nodes: what is written, when, and what a process that starts anew reads from it."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.node import Node, NodeCondition, NodeStatus
from koordinator.model.overcommit.abnormality import (
    AGENT_MISSING,
    CONDITION_TYPE,
    FROZEN_READINGS,
    METRICS_STOPPED,
    REPORT_FROM_THE_PAST,
    USAGE_ABOVE_CAPACITY,
    ConditionChange,
    NodeHealth,
    condition_change,
    remembered,
)
from tests.model.overcommit.node_objects import NOW
from tests.model.overcommit.watched_nodes import ABOVE, MINUTE, NODE, SOUND, Watched

NORMAL: Final = NodeHealth(first_seen=NOW, changed_at=NOW)


def marked(change: ConditionChange | None, node: Node = NODE) -> Node:
    """The node with the change written on it."""
    assert change is not None
    (document,) = change.patch["status"]["conditions"]
    conditions = [NodeCondition(type="Ready", status="True"), convert(document, NodeCondition)]
    status = NodeStatus(conditions=conditions, capacity=node.status.capacity, allocatable=node.status.allocatable)
    return msgspec.structs.replace(node, status=status)


def written(change: ConditionChange | None) -> dict[str, str]:
    assert change is not None
    (condition,) = change.patch["status"]["conditions"]
    return dict(condition)


def above() -> NodeHealth:
    node = Watched()
    node.reports([ABOVE] * 6)
    return node.known


def frozen() -> NodeHealth:
    node = Watched()
    node.reports([SOUND] * 32, pods={"p": ("1", "1G")})
    return node.known


def restarted(health: NodeHealth, minutes: int = 60) -> Watched:
    """A process that knows of the node what is written on it."""
    stored = marked(condition_change(NODE, health, NOW))
    node = Watched(remembered(stored, NOW + minutes * MINUTE), stored)
    node.now = NOW + minutes * MINUTE
    return node


def test_a_node_that_has_always_been_well_gets_no_condition() -> None:
    assert condition_change(NODE, NORMAL, NOW) is None


def test_the_condition_of_an_abnormal_node() -> None:
    change = condition_change(NODE, above(), NOW + 9 * MINUTE)
    assert written(change) == {
        "type": CONDITION_TYPE,
        "status": "True",
        "reason": USAGE_ABOVE_CAPACITY,
        "message": "the node is said to use more than it has, for 5 minutes and more",
        "lastHeartbeatTime": "2026-01-01T12:09:00Z",
        "lastTransitionTime": "2026-01-01T12:05:00Z",
    }
    assert change is not None
    assert (change.before, change.after) == ("", USAGE_ABOVE_CAPACITY)


def test_a_condition_is_written_once() -> None:
    stored = marked(condition_change(NODE, above(), NOW))

    assert condition_change(stored, above(), NOW + MINUTE) is None


def test_the_condition_of_a_node_that_is_normal_again() -> None:
    stored = marked(condition_change(NODE, above(), NOW))

    change = condition_change(stored, NodeHealth(first_seen=NOW, changed_at=NOW + 20 * MINUTE), NOW + 21 * MINUTE)

    condition = written(change)
    assert (condition["status"], condition["reason"]) == ("False", "ReadingsAreSound")
    assert condition["lastTransitionTime"] == "2026-01-01T12:20:00Z"
    assert change is not None
    assert (change.before, change.after) == (USAGE_ABOVE_CAPACITY, "")


def test_a_node_that_nobody_checks_any_more_is_said_to_be_that() -> None:
    stored = marked(condition_change(NODE, above(), NOW))

    condition = written(condition_change(stored, None, NOW + 20 * MINUTE))

    assert (condition["status"], condition["reason"]) == ("False", "NotChecked")
    assert condition["lastTransitionTime"] == "2026-01-01T12:20:00Z"


def test_what_is_said_of_a_normal_node_stays_when_nobody_checks_it() -> None:
    stored = marked(condition_change(NODE, above(), NOW))
    sound = marked(condition_change(stored, NORMAL, NOW))

    assert condition_change(sound, None, NOW) is None
    assert condition_change(NODE, None, NOW) is None


def test_another_reason_is_no_transition() -> None:
    other = restarted(above())
    other.look()
    other.pass_minutes(30)
    other.look()

    change = condition_change(other.node, other.known, other.now)

    condition = written(change)
    assert condition["reason"] == AGENT_MISSING
    assert condition["lastTransitionTime"] == "2026-01-01T12:05:00Z"
    assert change is not None
    assert (change.before, change.after) == (USAGE_ABOVE_CAPACITY, AGENT_MISSING)


def test_a_restart_does_not_forgive() -> None:
    node = restarted(above())

    assert node.report() == [USAGE_ABOVE_CAPACITY]
    assert condition_change(node.node, node.known, node.now) is None
    assert node.reports([SOUND] * 7)[-1] == []


def test_a_restart_finds_at_once_what_was_found_before() -> None:
    node = restarted(above())

    assert node.reports([SOUND] * 3 + [ABOVE] * 3 + [SOUND] * 4) == [[USAGE_ABOVE_CAPACITY]] * 10


def test_a_restart_does_not_thaw_frozen_readings() -> None:
    node = restarted(frozen())

    assert node.reports([SOUND] * 20, pods={"p": ("1", "1G")}) == [[FROZEN_READINGS]] * 20
    assert node.reports([SOUND] * 7)[-1] == []


def test_frozen_readings_are_remembered_before_what_is_soon_found_again() -> None:
    node = Watched()
    node.reports([ABOVE] * 32, pods={"p": ("1", "1G")})
    assert [each.code for each in node.known.findings] == [FROZEN_READINGS, USAGE_ABOVE_CAPACITY]

    again = restarted(node.known)

    codes = again.reports([ABOVE] * 6 + [SOUND] * 6, pods={"p": ("1", "1G")})
    assert all(FROZEN_READINGS in found for found in codes)


def test_a_restart_does_not_forget_since_when() -> None:
    node = restarted(frozen())
    node.reports([SOUND] * 3, pods={"p": ("1", "1G")})

    assert node.known.changed_at == NOW + 30 * MINUTE
    assert condition_change(node.node, node.known, node.now) is None


def test_a_restart_leaves_the_mark_of_a_silent_node_alone() -> None:
    silent = Watched()
    silent.report()
    silent.pass_minutes(16)
    silent.look()
    node = restarted(silent.known)
    node.metric = silent.metric

    for _ in range(10):
        assert node.look() == [METRICS_STOPPED]
        assert node.known.well_since is None
        node.pass_minutes()


def test_a_restart_does_not_mistake_a_wrong_clock_for_silence() -> None:
    late = Watched()
    for _ in range(8):
        late.report(updated=late.now - timedelta(hours=1))
        late.pass_minutes()
    node = restarted(late.known)
    for _ in range(10):
        assert node.report(updated=node.now - timedelta(hours=1)) == [REPORT_FROM_THE_PAST]
        node.pass_minutes()


def test_a_restart_remembers_a_normal_node_as_normal() -> None:
    stored = marked(condition_change(NODE, above(), NOW))
    forgiven = marked(condition_change(stored, NORMAL, NOW))

    assert not remembered(forgiven, NOW).is_abnormal
    assert not remembered(NODE, NOW).is_abnormal


MINUTES: Final = st.lists(
    st.sampled_from(["sound", "above", "negative", "same", "late", "ahead", "silent"]), min_size=1
)


@given(st.lists(MINUTES, min_size=1, max_size=6), st.sampled_from([1, 5, 10]))
def test_a_restart_at_any_moment_changes_no_mark(runs: list[list[str]], times: int) -> None:
    node = Watched()
    for kind in (kind for run in runs for kind in run * times):
        minute(node, kind)
    before = node.known
    stored = marked(condition_change(NODE, before, node.now)) if before.is_abnormal else NODE
    again = Watched(remembered(stored, node.now), stored)
    again.now, again.metric = node.now, node.metric
    again.look()
    assert again.known.is_abnormal == before.is_abnormal
    if before.is_abnormal:
        assert again.known.changed_at == before.changed_at


def minute(node: Watched, kind: str) -> None:
    """Something that an agent may do, and the time until the next."""
    match kind:
        case "sound":
            node.report()
        case "above":
            node.report(ABOVE)
        case "negative":
            node.report(pods={"p": ("-1", "1G")})
        case "same":
            node.report(pods={"p": ("1", "1G")})
        case "late":
            node.report(updated=node.now - timedelta(hours=1))
        case "ahead":
            node.report(updated=node.now + timedelta(hours=1))
        case _:
            node.look()
    node.pass_minutes()
