"""``koord get``: what there is, without knowing a name."""

from __future__ import annotations

import asyncio
import json
from argparse import Namespace
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, ELASTIC_QUOTAS, NODES, PODS, RESERVATIONS
from koordinator.api.manifests import custom_resource_definitions
from koordinator.base.clock import ManualClock
from koordinator.cli import get
from koordinator.cli.explain_terminal import Terminal
from koordinator.cli.listing import LISTINGS, age_of, rows_of
from koordinator.cli.main import main, make_parser
from koordinator.cli.query import Answer, print_answers
from tests.cli.explained_cluster import ExplainedCluster, explained_cluster

Captured = pytest.CaptureFixture[str]
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG = "a-quota-with-a-name-that-is-longer-than-eighty-columns-are-wide-so-that-a-table-would-cut-it"
SPEC = {"schedulerName": "koord-scheduler", "containers": [{"name": "a", "image": "x"}]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainedCluster]:
    with explained_cluster(tmp_path_factory.mktemp("get")) as found:
        for definition in custom_resource_definitions():
            found.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        found.create(NODES, {"metadata": {"name": "node-1"}})
        found.create(PODS, {"metadata": {"name": "web"}, "spec": SPEC}, "default")
        found.create(PODS, {"metadata": {"name": "old"}, "spec": {**SPEC, "nodeName": "node-1"}}, "default")
        said = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available: no. preemption: no."}
        found.set_status(PODS, "web", {"conditions": [said]}, "default")
        quota = {
            "metadata": {"name": LONG},
            "spec": {"min": {"cpu": "4"}, "max": {"cpu": "8", "memory": "1844674407370955161"}},
        }
        found.create(ELASTIC_QUOTAS, quota, "default")
        reserved = {"template": {"spec": SPEC}, "owners": [{"object": {"name": "web"}}]}
        found.create(RESERVATIONS, {"metadata": {"name": "release"}, "spec": reserved})
        yield found


def test_the_pods_that_wait_are_listed_with_the_reason(cluster: ExplainedCluster, capsys: Captured) -> None:
    assert main(["get", "pending", *cluster.arguments]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["pod", "age", "why"]
    assert [row.split(maxsplit=2)[::2] for row in rows] == [["default/web", "0/1 nodes are available: no"]]


def test_a_long_name_is_whole_where_no_terminal_is(
    cluster: ExplainedCluster, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["get", "quotas", *cluster.arguments]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if LONG in line)
    assert row.split(maxsplit=1)[1].split("  ") == ["4 cpu", "8 cpu, no limit memory"]


@pytest.mark.parametrize("word", ["reservations", "reservation"])
def test_names_alone_are_for_scripts(word: str, cluster: ExplainedCluster, capsys: Captured) -> None:
    assert main(["get", word, "-o", "name", *cluster.arguments]) == 0
    assert capsys.readouterr().out == "release\n"


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_whole_documents_are_for_programs(form: str, read: object, cluster: ExplainedCluster, capsys: Captured) -> None:
    assert main(["get", "pending", "-o", form, *cluster.arguments]) == 0
    assert callable(read)
    document = read(capsys.readouterr().out)
    assert [each["metadata"]["name"] for each in document["items"]] == ["web"]
    # As kubectl prints them, so that it takes them back.
    assert (document["apiVersion"], document["kind"]) == ("v1", "List")
    assert {(item["apiVersion"], item["kind"]) for item in document["items"]} == {("v1", "Pod")}


def test_a_namespace_that_has_none_says_so(cluster: ExplainedCluster, capsys: Captured) -> None:
    assert main(["get", "pending", "-n", "kube-system", *cluster.arguments]) == 0
    assert capsys.readouterr().out == "No resources found in kube-system namespace.\n"


def test_a_mistyped_list_is_answered(capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        main(["get", "qotas"])
    assert "did you mean quotas?" in capsys.readouterr().err


def test_what_goes_on_prints_each_row_when_it_changes(cluster: ExplainedCluster) -> None:
    options: Namespace = make_parser().parse_args(["get", "nodes", "-w", "-o", "name", *cluster.arguments])
    shown: list[str] = []
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise asyncio.CancelledError

    def show(answer: Answer, text: str) -> None:
        shown.append(text)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(print_answers(get.question(options, ManualClock(), Terminal()), "name", "utf-8", show, sleep))
    assert (shown, slept) == (["node-1\n"], [2.0, 2.0])


def test_a_gang_is_listed_as_the_scheduler_knows_it() -> None:
    children: dict[str, Any] = {"children": {"a/1": {}, "a/2": {}}, "pendingChildren": {"a/1": {}}}
    document = {"name": "a/b", "minRequiredNumber": 3, "gangGroup": ["a/b", "a/c"], **children}
    (row,) = rows_of(LISTINGS["gangs"], [document], NOW)
    assert (row["needs"], row["pods"], row["pending"], row["placed with"]) == ("3", "2", "1", "a/c")


@pytest.mark.parametrize(
    ("text", "age"),
    [("2026-01-01T11:59:00Z", "60s"), ("2026-01-01T11:50:00Z", "10m"), ("2025-12-20T12:00:00Z", "12d"), (None, "")],
)
def test_ages(text: str | None, age: str) -> None:
    assert age_of(text, NOW) == age


def test_amounts_of_a_node_are_in_the_units_that_people_use() -> None:
    amounts = {"cpu": "7800m", "memory": "32156Mi", "kubernetes.io/batch-cpu": "5k"}
    (row,) = rows_of(LISTINGS["nodes"], [{"metadata": {"name": "n"}, "status": {"allocatable": amounts}}], NOW)
    assert [row[title] for title in ("cpu", "memory", "batch cpu", "batch memory")] == [
        "7.8 cores",
        "31.402Gi",
        "5000m",
        "",
    ]
