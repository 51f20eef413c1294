"""The explanation of a quota, as a terminal shows it."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from koordinator.api.codec import convert
from koordinator.api.explanations import QuotaExplanation
from koordinator.cli.explain_quota import print_quota
from koordinator.cli.explain_target import parse_target

DOCUMENT: dict[str, Any] = {
    "quota": "vision",
    "parents": ["research", "koordinator-root-quota"],
    "faults": ["spec.min: cpu is negative"],
    "resources": [
        {
            "name": "cpu",
            "min": "4",
            "max": "8",
            "request": "8",
            "used": "6",
            "runtime": "8",
            "free": "2",
            "why": "its min and 4 more by its weight",
        }
    ],
    "siblings": [
        {"quota": "vision", "lends": "", "borrows": "cpu:4"},
        {"quota": "speech", "lends": "cpu:4", "borrows": ""},
        {"quota": "idle", "lends": "", "borrows": ""},
    ],
    "pods": {"assigned": 6, "waiting": 2},
    "next": "default/small",
    "waiting": [
        {"pod": "default/large", "priority": 5, "request": "cpu:4", "reason": "Insufficient quotas"},
        {"pod": "default/small", "priority": 0, "request": "cpu:1", "reason": ""},
    ],
}


def shown(**changes: Any) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    print_quota(convert({**DOCUMENT, **changes}, QuotaExplanation), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_it_says_who_is_next_who_lends_and_why_others_wait() -> None:
    text = shown()
    for line in (
        "vision  admits default/small next",
        "below research below koordinator-root-quota",
        "6 pods have a node, 2 wait",
        "spec.min: cpu is negative",
        "cpu: 8 is its min and 4 more by its weight",
        "vision uses up to cpu:4 beyond its min",
        "speech lends cpu:4",
        "default/large (cpu:4): Insufficient quotas",
        "default/small (cpu:1): would be admitted",
    ):
        assert line in text
    assert "idle" not in text


def test_a_max_that_only_says_no_limit_is_no_number() -> None:
    default = {"name": "cpu", "max": "9223372036854775807m", "runtime": "9223372036854775807m", "why": "its max"}
    of_tree = {"name": "memory", "max": "4611686018427387", "runtime": "4Pi"}
    text = shown(resources=[default, of_tree, {"name": "gpu", "max": "unlimited"}])
    assert "cpu: no limit is its max" in text
    assert text.count("no limit") == 5
    assert "4Pi" in text
    assert "7807" not in text
    assert "46116" not in text


def test_without_a_pod_that_fits_it_says_so() -> None:
    assert "vision  admits none of the pods that wait" in shown(next="")
    assert "vision  no pod waits" in shown(next="", pods={"assigned": 1, "waiting": 0}, waiting=[])


def test_quotas_are_named_in_every_usual_way() -> None:
    for words in (["quota", "vision"], ["eq/vision"], ["elasticquotas", "vision"]):
        target = parse_target(words, None)
        assert (target.kind, target.name) == ("quota", "vision")
