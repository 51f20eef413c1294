"""Stories in which the scheduler once knew something else than what the objects say; found by ``AnyOrder``."""

from __future__ import annotations

from typing import Any

from koordinator.api.codec import to_document
from koordinator.api.kinds import NODE_METRICS, NODES, PODS
from koordinator.api.labels import QUOTA_NAME
from koordinator.scheduler.explain import explain_node
from tests.scheduler.oracle.documents import TEAM
from tests.scheduler.oracle.story import Story
from tests.scheduler.watch.test_resync import AFTER


def facts(story: Story, node: str, plugin: str) -> dict[str, Any]:
    document = to_document(explain_node(story.scheduler.sources, node))
    assert document is not None
    found: dict[str, Any] = document["plugins"][plugin]
    return found


def test_a_device_object_without_devices_keeps_saying_so_when_pods_have_left() -> None:
    with Story() as story:
        story.put_node("n0", 1)
        story.put_device("n0", 0)
        story.place_elsewhere("p0", "gpu", "n0", 0)
        story.settle()
        story.cluster.remove(PODS, "p0", "default")
        story.create_pod("p1", "gpu")
        story.settle(30)
        assert story.placed() == {}
        story.finish()


def test_a_pod_whose_quota_changes_while_it_is_being_bound_counts_against_the_new_one() -> None:
    with Story() as story:
        story.put_node("n0", 1)
        story.put_quota(TEAM, 8)
        story.bindings_fail("unanswered")
        story.create_pod("p0", "plain")
        story.settle()
        story.label("p0", QUOTA_NAME, TEAM)
        story.settle()
        story.check()
        story.bindings_fail("refused")
        story.cluster.answer("refused")
        story.settle()
        story.check()


def test_a_pod_whose_node_goes_while_it_is_being_bound_uses_nothing_of_its_quota() -> None:
    with Story() as story:
        story.put_node("n0", 1)
        story.put_quota(TEAM, 8)
        story.bindings_fail("unanswered")
        story.create_pod("p0", "quota")
        story.settle()
        story.cluster.remove(NODES, "n0")
        story.settle()
        story.cluster.answer("refused")
        story.settle(1)
        assert not story.scheduler.state.assumed_count
        story.check()


def test_a_node_whose_report_is_deleted_has_none_that_has_expired() -> None:
    with Story() as story:
        story.put_node("n0", 1)
        story.put_metric("n0", 1)
        story.settle()
        story.cluster.remove(NODE_METRICS, "n0")
        story.settle()
        assert facts(story, "n0", "LoadAwareScheduling") == {"reported": False, "expired": False}


def test_a_reservation_on_a_node_without_topology_keeps_no_owner_that_is_bound_to_cpus_from_other_nodes() -> None:
    with Story() as story:
        story.put_node("n0", 1)
        story.put_node("n1", 1)
        story.put_topology("n1", 4)
        story.reserve("r0", "plain", once=False, node="n0")
        story.settle()
        story.create_pod("p0", "owner-cpus")
        story.settle(2)
        assert story.placed() == {"p0": "n1"}
        story.finish()


def test_a_plugin_that_missed_the_end_of_a_node_that_is_back_on_another_row_keeps_what_it_knows_of_it() -> None:
    with Story() as story:
        story.put_node("n0", 1)
        story.put_quota(TEAM, 8)
        story.settle()
        story.handler_fails("QuotaEventHandlers", "on_node_removed", 0)
        story.cluster.remove(NODES, "n0")
        story.put_node("n1", 1)
        story.put_node("n0", 1)
        story.settle()
        assert story.scheduler.state.event_handlers.stale
        story.settle(4)
        assert not story.is_late
        story.check_restarted()


def test_a_plugin_that_missed_a_pod_leaving_a_row_counts_it_on_the_row_where_it_is_by_then() -> None:
    with Story() as story:
        story.put_node("n0", 1)
        story.put_quota(TEAM, 8)
        story.bindings_fail("unanswered")
        story.create_pod("p0", "quota")
        story.settle()
        story.put_node("n1", 1)
        story.handler_fails("QuotaEventHandlers", "on_pod_removed", AFTER)
        story.bind_elsewhere("p0", "n1")
        story.settle()
        assert story.scheduler.state.event_handlers.stale
        story.settle(4)
        assert not story.is_late
        story.check()


def test_a_pod_in_operating_mode_is_no_reservation_while_its_node_is_away() -> None:
    with Story() as story:
        story.put_node("n0", 1)
        story.put_node("n1", 1)
        story.place_elsewhere("p0", "operating", "n0", 0)
        story.get_ready("p0")
        story.settle()
        story.cluster.remove(NODES, "n0")
        story.settle()
        story.check()
        story.check_restarted()
        story.put_node("n0", 1)
        story.settle()
        story.check()
        story.check_restarted()


def test_a_plugin_that_missed_a_change_of_a_pod_whose_node_goes_counts_it_as_the_api_has_it() -> None:
    with Story() as story:
        story.put_node("n0", 1)
        story.put_quota(TEAM, 8)
        story.create_pod("p0", "quota")
        story.settle()
        story.handler_fails("QuotaEventHandlers", "on_pod_assigned", AFTER)
        story.label("p0", "app", "other")
        story.settle()
        story.cluster.remove(NODES, "n0")
        story.settle()
        assert story.scheduler.state.event_handlers.stale
        story.settle(4)
        assert not story.is_late
        story.check()
