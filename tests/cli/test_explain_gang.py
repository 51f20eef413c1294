"""The explanation of a gang, as a terminal shows it."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from koordinator.api.codec import convert
from koordinator.api.explanations import GangExplanation
from koordinator.cli.explain_failure import UsageError
from koordinator.cli.explain_gang import print_gang
from koordinator.cli.explain_target import parse_target

COUNTS = {"pending": 1, "waiting": 1, "binding": 0, "bound": 0}
DOCUMENT: dict[str, Any] = {
    "gang": "team-a/training",
    "state": "holds nodes and waits for more",
    "declaredBy": "PodGroup",
    "minMember": 3,
    "mode": "NonStrict",
    "matchPolicy": "once-satisfied",
    "waitSeconds": 600.0,
    "problems": ["mode: 'loose' is not Strict or NonStrict"],
    "members": COUNTS,
    "finished": {},
    "group": [{"gang": "team-a/training", "exists": True, "minMember": 3, "counted": 2, **COUNTS}],
    "waitsFor": ["2 more members of team-a/training must find a node before any member is bound."],
    "waiting": [
        {"pod": "team-a/w-0", "state": "waiting", "node": "n1", "reason": "has a node and waits for the other members"},
        {"pod": "team-a/w-1", "state": "pending", "node": "", "reason": "is being deleted"},
    ],
}


def shown(**changes: Any) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    print_gang(convert({**DOCUMENT, **changes}, GangExplanation), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_it_says_what_the_gang_waits_for_and_each_member() -> None:
    text = shown()
    for line in (
        "team-a/training  holds nodes and waits for more",
        "declared by its PodGroup: 3 members together, NonStrict, once-satisfied, waits 600 s at most",
        "mode: 'loose' is not Strict or NonStrict",
        "2 more members of team-a/training must find a node",
        "team-a/w-0 (for n1): has a node and waits for the other members",
        "team-a/w-1: is being deleted",
    ):
        assert line in text
    assert "more\n" not in text.partition("team-a/w-1")[2]


def test_a_missing_gang_of_the_group_is_in_the_table() -> None:
    missing = {"gang": "team-a/other", "exists": False, "minMember": None, "counted": 0, **COUNTS}
    text = shown(group=[*DOCUMENT["group"], missing])
    assert "The gangs that are placed together:" in text
    assert "does not exist" in text


def test_members_beyond_those_shown_are_counted() -> None:
    assert "and 7 more" in shown(members={**COUNTS, "pending": 8})


def test_members_that_have_finished_are_counted() -> None:
    assert "members that have finished" not in shown()
    assert "members that have finished: 1 Failed, 2 Succeeded" in shown(finished={"Failed": 1, "Succeeded": 2})


def test_a_gang_that_nobody_declares_is_shown() -> None:
    text = shown(minMember=None, mode="", matchPolicy="", waitSeconds=None, group=[], waiting=[])
    assert "declared by nobody so far" in text


def test_who_leaves_when_a_member_is_preempted_is_shown() -> None:
    sentence = "When a member is preempted, all 3 that are on nodes leave together (gangPolicy Whole)."
    assert sentence in shown(preemption=sentence)


def test_its_place_in_the_network_is_shown() -> None:
    domain_slots = [{"domain": "BlockLayer/b1", "slots": 2}, {"domain": "BlockLayer/b0", "slots": 1}]
    sentences = ["No domain of BlockLayer can take all 3 members."]
    network = {"domain": "", "wanted": 3, "sentences": sentences, "domainSlots": domain_slots, "moreDomains": 4}
    text = shown(network=network)
    for line in (
        "Its place in the network:",
        "No domain of BlockLayer can take all 3 members.",
        "The domains with the most free slots, and 4 more:",
    ):
        assert line in text
    assert [line.replace("│", "").split() for line in text.splitlines() if "BlockLayer/" in line] == [
        ["BlockLayer/b1", "2", "3"],
        ["BlockLayer/b0", "1", "3"],
    ]
    assert "network" not in shown(network=None)


@pytest.mark.parametrize("words", [["gang", "a/g"], ["pg/a/g"], ["podgroups", "a/g"]])
def test_gangs_are_named_in_every_usual_way(words: list[str]) -> None:
    target = parse_target(words, None)
    assert (target.kind, target.namespace, target.name) == ("gang", "a", "g")


@pytest.mark.parametrize("name", ["training:workers", "training:workers:0"])
def test_a_gang_may_be_a_pod_group_of_a_workload(name: str) -> None:
    assert parse_target(["gang", f"a/{name}"], None).name == name
    with pytest.raises(UsageError, match="is not the name of a pod"):
        parse_target(["pod", f"a/{name}"], None)


def test_a_gang_has_the_namespace_of_the_option() -> None:
    assert parse_target(["gang", "g"], "b").namespace == "b"


def test_two_namespaces_are_refused() -> None:
    with pytest.raises(UsageError, match="the gang is named a/g already"):
        parse_target(["gang", "a/g"], "b")
