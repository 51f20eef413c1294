"""What each place of the page shows is what the commands say at the same moment."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from koordinator.cli.main import main
from tests.browser.chromium import Chromium

Said = Callable[..., Any]
_IN_PART = 5
"""The exit status of an explanation without the scheduler, which does not run here."""


@pytest.fixture
def printed(kubeconfig: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Said:
    # Each row on a line of its own, whatever the terminal of whoever runs the tests.
    monkeypatch.setenv("COLUMNS", "1000")

    def run(*words: str) -> str:
        """What a command prints."""
        status = main([*words, f"--kubeconfig={kubeconfig}"])
        captured = capsys.readouterr()
        assert status in (0, _IN_PART), captured.err
        return captured.out

    return run


@pytest.fixture
def said(printed: Said) -> Said:
    def run(*words: str) -> Any:
        """The document of a command."""
        return json.loads(printed(*words, "-o", "json"))

    return run


@pytest.fixture
def listed(printed: Said) -> Said:
    def run(what: str) -> list[dict[str, str]]:
        """The rows of ``koord get``, by the titles of their columns."""
        header, *lines = printed("get", what).rstrip().splitlines()
        starts = [(found.start(), found.group()) for found in re.finditer(r"\S+", header)]
        ends = [start for start, _ in starts[1:]] + [None]
        return [
            {title: line[start:end].strip() for (start, title), end in zip(starts, ends, strict=True)} for line in lines
        ]

    return run


def cells(window: Chromium, selector: str) -> list[list[str]]:
    """What a table says, row by row."""
    found: list[list[str]] = window.run(
        "return [...document.querySelectorAll(`${arguments[0]} tbody tr`)].map(row =>"
        " [...row.cells].map(cell => cell.innerText.trim()))",
        selector,
    )
    return found


def rows(window: Chromium, label: str) -> list[list[str]]:
    """Those of a long table, by its name."""
    return cells(window, f"[aria-label='Table: {label}']")


def cores(milli: int) -> str:
    return f"{milli / 1000:g} {'core' if milli == 1000 else 'cores'}"


def test_classes_are_those_of_koord_top(shown: Chromium, said: Said) -> None:
    classes = said("top")
    expected = {
        (
            each["name"].removeprefix("koord-"),
            str(each["pods"]),
            cores(each["allocated"]["cpu"]),
            cores(each["measured"]["cpu"]),
        )
        for each in classes
    }
    assert {name for name, *_ in expected} == {"batch", "prod"}
    shown.until(lambda: {(row[0], row[1], row[3], row[4]) for row in cells(shown, ".classes")} == expected)


def test_nodes_are_those_of_koord_top(shown: Chromium, said: Said) -> None:
    shown.go("nodes")
    expected = []
    for each in said("top", "nodes"):
        share = 100 * each["measured"]["cpu"] / each["allocatable"]["cpu"]
        pods = sum(usage["pods"] for usage in each["classes"].values())
        expected.append((each["name"], f"{share:.0f} %", str(pods)))
    assert len(expected) == 3
    shown.until(lambda: [(row[0], row[3], row[7]) for row in rows(shown, "Nodes")] == expected)
    assert [row[1] for row in rows(shown, "Nodes")] == ["ready", "ready", "not ready"]


def test_pods_are_those_of_koord_top(shown: Chromium, said: Said) -> None:
    shown.go("pods")
    measured = {each["key"]: each["measured"] for each in said("top", "pods")}
    shown.until(lambda: set(measured) <= {row[0] for row in rows(shown, "Pods")})
    for row in rows(shown, "Pods"):
        if row[0] in measured:
            assert row[6] == (cores(measured[row[0]]["cpu"]) if measured[row[0]] else "–")


def test_pending_pods_are_those_of_koord_get_with_what_would_help(shown: Chromium, listed: Said) -> None:
    shown.go("pending")
    expected = {each["pod"]: each["why"] for each in listed("pending")}
    assert set(expected) == {"shop/big", "shop/odd"}
    shown.until(lambda: {row[0]: row[5] for row in rows(shown, "Pending pods")} == expected)
    assert "Insufficient cpu" in shown.text(".groups")


@pytest.mark.parametrize(
    ("place", "what", "label", "columns"),
    [
        ("tenants", "reservations", "Reservations", {"reservation": 0, "phase": 1, "node": 2, "allocatable": 3}),
        ("moves", "migrations", "Migrations", {"migration": 0, "pod": 1, "phase": 2, "step": 3}),
    ],
)
def test_lists_are_those_of_koord_get(
    shown: Chromium, listed: Said, place: str, what: str, label: str, columns: dict[str, int]
) -> None:
    shown.go(place)
    expected = [[each[name] for name in columns] for each in listed(what)]
    assert expected
    shown.until(lambda: [[row[at] for at in columns.values()] for row in rows(shown, label)] == expected)


def test_quotas_are_those_of_koord_get(shown: Chromium, listed: Said) -> None:
    shown.go("tenants")
    quotas = {each["quota"]: each for each in listed("quotas")}
    assert quotas["team"]["used"] == "5 cpu"
    shown.shows("used 5 cores of 6 cores; guaranteed 4 cores, at most 8 cores", ".quotas")
    shown.shows("1 quota uses more than is guaranteed, of what others leave: team.")


def test_what_is_explained_is_what_koord_explain_says(shown: Chromium, said: Said) -> None:
    for kind, name in (("pod", "shop/web"), ("node", "node-1")):
        document = said("explain", kind, *name.split("/")[-1:], *(("-n", "shop") if kind == "pod" else ()))
        shown.go(f"explain/{kind}/{name}")
        shown.shows("In full", ".drawer")
        assert shown.text(".drawer .command").strip().startswith(f"koord explain {kind} {name}")
        found = shown.run("return fetch(arguments[0]).then(response => response.json())", f"api/explain/{kind}/{name}")
        assert found["document"].keys() == document.keys()
        assert " ".join(found["text"].split()) == " ".join(shown.text(".drawer pre").split())


def test_who_suffers_moves_and_holds_a_device(shown: Chromium) -> None:
    shown.shows("1 pod suffers from others on their nodes", ".findings")
    shown.go("interference")
    shown.shows("cpi is 2, normally 1 (limit 1.5)")
    assert cells(shown, ".finding table")[0][:4] == ["shop/spark", "BE", "0.9", "0.8"]
    shown.go("moves")
    shown.shows("2 Waiting", ".finding")
    shown.go("devices")
    shown.shows("1 of 2 GPUs are free as a whole, 1 are shared in part.")
    shown.shows("shop/train 50 % GPU core", ".cards")
