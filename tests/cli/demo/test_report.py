"""The claims of the demonstration: each must fail when what it says is not so."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from koordinator.api.priority import PriorityClass
from koordinator.cli.demo.claims import claims, longest_above, overbooked, placed_on_hot_nodes, utilisation
from koordinator.cli.demo.observation import BatchCapacity, Day, Explained, Mark, Moment, NodeUsage, PlacedPod
from koordinator.cli.demo.report import print_report
from koordinator.cli.demo.rush import Look, Rush, rush_claim
from koordinator.cli.demo.workloads import Workloads
from tests.cli.demo.cooled_node import a_cooled_node


def usage(used: int, batch: int) -> NodeUsage:
    return NodeUsage(used, used - batch, batch)


def pod(name: str, priority_class: PriorityClass, node: str) -> PlacedPod:
    return PlacedPod(name, priority_class, node, {"pods": 1})


def a_good_day() -> Day:
    day = Day(capacity={"a": 10_000}, allocatable={"a": {"pods": 10}})
    day.moments = [
        Moment(float(hour), {"a": usage(1_000 if hour < 7 else 5_000, 0 if hour < 7 else 4_000)}) for hour in range(24)
    ]
    # Online pods are busy at two in the afternoon, and less is offered to batch pods then.
    day.moments[14] = Moment(14.0, {"a": usage(6_000, 4_000)})
    day.batch_capacity = [BatchCapacity(float(hour), 4_000 if hour == 14 else 5_000) for hour in range(24)]
    day.pods = {
        "web": pod("web", PriorityClass.PROD, "a"),
        "job": pod("job", PriorityClass.BATCH, "a"),
    }
    day.most_requested = {("a", "pods"): 2}
    day.kept_off_hot_nodes = 3
    day.marks = {"node-19": [Mark(11.0, "NegativeUsage", 0), Mark(14.0, "", 5_000)]}
    day.explained = explained("0/1 nodes are available", "0/1 nodes are available", "0/1 nodes are available")
    day.workloads = Workloads(
        placed={"web": 0.0, "job": 8.0, **{f"training-{number}": 11.0 for number in range(8)}},
        nodes={"checkout-next": "a"},
        used=[(20.0, {"analytics": 24, "reports": 0}), (22.0, {"analytics": 8, "reports": 16})],
        reservations=[(4.0, "Available", "a"), (19.0, "Succeeded", "a")],
    )
    day.hot_node = a_cooled_node()
    day.rush = a_rush()
    return day


def a_rush(held: int = 2_900, back: int = 7_300, after: bool = True) -> Rush:
    said = {"policy": "cfsQuota", "cpus": 2.9, "since": "2026-01-01T00:00:12Z", "why": "65 % of 16 CPUs, less much"}
    looks = [Look(10.0, 7_500, 0, None), Look(12.0, held, 5_500, said)]
    return Rush([*looks, Look(15.0, back, 0, None)] if after else looks)


def explained(message: str, condition: str, *notes: str) -> Explained:
    return Explained("large", message, ("request less",), "a: cpu: short by 90", condition, notes)


def failing(day: Day) -> list[int]:
    return [index for index, claim in enumerate(claims(day)) if not claim.holds]


def test_a_good_day_holds_every_claim() -> None:
    assert failing(a_good_day()) == []


def test_utilisation_separates_batch_from_the_rest() -> None:
    assert utilisation(a_good_day(), 8.0) == pytest.approx((10.6, 50.6), abs=0.1)


def test_a_pending_online_pod_fails_its_claim() -> None:
    day = a_good_day()
    day.pods["web"] = pod("web", PriorityClass.PROD, "")
    assert failing(day) == [0]


def test_a_pending_batch_pod_fails_its_claim() -> None:
    day = a_good_day()
    day.pods["job"] = pod("job", PriorityClass.BATCH, "")
    assert failing(day) == [1]


def test_an_overbooked_node_fails_its_claim() -> None:
    day = a_good_day()
    day.most_requested[("a", "pods")] = 11
    assert overbooked(day) == ["a pods"]
    assert failing(day) == [2]


def test_no_gain_fails_its_claim() -> None:
    day = a_good_day()
    day.moments = [Moment(moment.hour, {"a": usage(1_000, 100)}) for moment in day.moments]
    assert 3 in failing(day)


def test_batch_resources_may_shrink_under_the_pods_that_have_them() -> None:
    day = a_good_day()
    day.most_requested["a", "kubernetes.io/batch-cpu"] = 9_000
    assert overbooked(day) == []


@pytest.mark.parametrize("offered", [5_000, 6_000, 0])
def test_batch_capacity_that_does_not_follow_online_load_fails_its_claim(offered: int) -> None:
    day = a_good_day()
    day.batch_capacity[14] = BatchCapacity(14.0, offered)
    assert failing(day) == [7]


def test_hurt_online_pods_fail_their_claim() -> None:
    day = a_good_day()
    for hour in range(15, 18):
        day.moments[hour] = Moment(float(hour), {"a": usage(6_600, 5_600)})
    assert longest_above(day, 65) == 2.0
    assert 8 in failing(day)


@pytest.mark.parametrize(
    "marks",
    [
        {},
        {"node-19": [Mark(11.0, "NegativeUsage", 5_000), Mark(14.0, "", 5_000)]},
        {"node-19": [Mark(11.0, "NegativeUsage", 0)]},
        {"node-19": [Mark(11.0, "NegativeUsage", 0), Mark(14.0, "", 0)]},
        {"node-19": [Mark(11.0, "", 5_000)]},
        {
            "node-19": [Mark(11.0, "NegativeUsage", 0), Mark(14.0, "", 5_000)],
            "node-1": [Mark(11.0, "NegativeUsage", 0), Mark(14.0, "", 5_000)],
        },
    ],
)
def test_an_abnormal_node_that_is_not_set_aside_fails_its_claim(marks: dict[str, list[Mark]]) -> None:
    day = a_good_day()
    day.marks = marks
    assert failing(day) == [9]


def test_a_short_peak_hurts_nobody() -> None:
    day = a_good_day()
    day.moments[15] = Moment(15.0, {"a": usage(6_600, 5_600)})
    assert longest_above(day, 65) == 0.0
    assert failing(day) == []


def test_a_filter_that_did_nothing_fails_its_claim() -> None:
    day = a_good_day()
    day.kept_off_hot_nodes = 0
    assert failing(day) == [4]


def test_a_batch_pod_on_a_hot_node_fails_its_claim() -> None:
    day = a_good_day()
    day.moments = [Moment(m.hour, {"a": usage(7_000, 6_000 if m.hour >= 7 else 0)}) for m in day.moments]
    assert [hot.name for hot in placed_on_hot_nodes(day)] == ["job"]
    assert 5 in failing(day)


def test_two_hot_reports_are_not_held_against_the_scheduler() -> None:
    """It may have decided before the second one."""
    day = a_good_day()
    for hour in (7, 8):
        day.moments[hour] = Moment(float(hour), {"a": usage(7_000, 0)})
    assert placed_on_hot_nodes(day) == []


def test_a_pod_whose_creator_chose_the_hot_node_is_not_held_against_the_scheduler() -> None:
    day = a_good_day()
    day.moments = [Moment(m.hour, {"a": usage(7_000, 6_000)}) for m in day.moments]
    day.placed_by_hand = {"job"}
    assert placed_on_hot_nodes(day) == []


def test_a_claim_that_does_not_hold_says_what_was_expected_what_was_seen_and_what_to_try() -> None:
    day = a_good_day()
    day.workloads.used = [(20.0, {"analytics": 4, "reports": 0}), (22.0, {"analytics": 8, "reports": 2})]
    console = Console(file=io.StringIO(), width=200)
    print_report(day, claims(day), console)
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    for text in (
        "expected: analytics uses more than its 8 CPUs between 19:30 and 21:00",
        "seen: CPUs used at 20:00: analytics 4, reports 0; 22:00: analytics 8, reports 2",
        "try: koord explain quota analytics; koord explain quota reports",
    ):
        assert text in said
    assert said.count("expected:") == 1


def test_every_claim_that_fails_has_an_expectation_numbers_and_something_to_try() -> None:
    for claim in claims(Day()):
        assert claim.holds or (claim.expected and claim.seen and claim.advice), claim.text


def test_a_day_without_observations_fails_nearly_everything() -> None:
    assert failing(Day()) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]


@pytest.mark.parametrize(
    "rush",
    [
        Rush(),
        Rush([Look(10.0, 7_500, 0, None), Look(12.0, 2_900, 5_500, None), Look(15.0, 7_300, 0, None)]),
        a_rush(held=5_000),
        a_rush(back=4_000),
        a_rush(after=False),
    ],
    ids=["nothing seen", "nothing said", "not held to what was said", "not let go", "still held"],
)
def test_batch_pods_that_do_not_make_room_or_do_not_have_it_back_fail_their_claim(rush: Rush) -> None:
    day = a_good_day()
    day.rush = rush
    assert failing(day) == [10]


def test_other_batch_pods_may_keep_the_node_at_its_threshold_before_and_after_the_rush() -> None:
    looks = [
        Look(10.0, 6_700, 0, {"cpus": 8.4}),
        Look(12.0, 2_600, 5_000, {"cpus": 3.2}),
        Look(14.5, 6_400, 0, {"cpus": 8.1}),
    ]
    assert rush_claim(Rush(looks)).holds


def test_the_report_says_why_batch_pods_were_held_down() -> None:
    console = Console(file=io.StringIO(), width=100)
    print_report(a_good_day(), [], console)
    assert isinstance(console.file, io.StringIO)
    said = "At 12:00 flash-sale used 5.5 CPUs of node-0, and its batch pods were suppressed to 2.9 CPUs, until 15:00."
    assert said in console.file.getvalue()


@pytest.mark.parametrize("hour", [None, 10.0, 14.0])
def test_a_gang_of_which_one_pod_is_missing_early_or_late_fails_its_claim(hour: float | None) -> None:
    day = a_good_day()
    del day.workloads.placed["training-7"]
    if hour is not None:
        day.workloads.placed["training-7"] = hour
    assert failing(day) == [11]


@pytest.mark.parametrize(
    "used",
    [
        [(20.0, {"analytics": 8, "reports": 0}), (22.0, {"analytics": 8, "reports": 16})],
        [(20.0, {"analytics": 24, "reports": 0}), (22.0, {"analytics": 8, "reports": 14})],
        [(20.0, {"analytics": 24, "reports": 0}), (22.0, {"analytics": 10, "reports": 16})],
    ],
    ids=["nothing borrowed", "not given back", "the borrower keeps some"],
)
def test_quotas_that_do_not_lend_and_take_back_fail_their_claim(used: list[tuple[float, dict[str, int]]]) -> None:
    day = a_good_day()
    day.workloads.used = used
    assert failing(day) == [12]


@pytest.mark.parametrize(
    ("reservations", "node"),
    [
        ([(4.0, "Pending", ""), (19.0, "Succeeded", "a")], "a"),
        ([(4.0, "Available", "a"), (5.0, "Available", "b"), (19.0, "Succeeded", "b")], "b"),
        ([(4.0, "Available", "a"), (19.0, "Available", "a")], "a"),
        ([(4.0, "Available", "a"), (19.0, "Succeeded", "a")], "b"),
    ],
    ids=["held too late", "moved", "not used", "the release went elsewhere"],
)
def test_a_reservation_that_is_not_held_and_used_fails_its_claim(
    reservations: list[tuple[float, str, str]], node: str
) -> None:
    day = a_good_day()
    day.workloads.reservations, day.workloads.nodes = reservations, {"checkout-next": node}
    assert failing(day) == [13]


@pytest.mark.parametrize(
    "said",
    [
        explained("one", "other", "one"),
        explained("one", "one", "other"),
        explained("one", "one"),
        explained("", "", ""),
    ],
)
def test_an_explanation_that_differs_from_condition_or_event_fails_its_claim(said: Explained) -> None:
    day = a_good_day()
    day.explained = said
    assert failing(day) == [6]


def test_an_event_of_an_earlier_attempt_does_no_harm() -> None:
    day = a_good_day()
    day.explained = explained("now", "now", "before", "now")
    assert failing(day) == []


def test_the_report_shows_why_the_pod_is_pending() -> None:
    console = Console(file=io.StringIO(), width=200)
    print_report(a_good_day(), [], console)
    assert isinstance(console.file, io.StringIO)
    assert "Closest is a: cpu: short by 90" in console.file.getvalue()


def test_the_report_shows_from_when_to_when_a_node_was_abnormal() -> None:
    console = Console(file=io.StringIO(), width=200)
    print_report(a_good_day(), [], console)
    assert isinstance(console.file, io.StringIO)
    assert "node-19 was marked as abnormal (NegativeUsage) from 11:00 to 14:00: nothing" in console.file.getvalue()


@pytest.mark.parametrize(("limit_before", "holds"), [(2.0, True), (1.5, False)])
def test_what_a_report_averages_may_have_been_used_under_the_limit_of_the_report_before(
    limit_before: float, holds: bool
) -> None:
    looks = [
        Look(10.0, 7200, 0, None),
        Look(12.0, 5000, 4000, {"cpus": limit_before}),
        Look(12.7, 1900, 5000, {"cpus": 1.5}),
        Look(15.0, 7200, 0, None),
    ]
    assert rush_claim(Rush(looks)).holds is holds
