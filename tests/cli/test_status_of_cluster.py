"""``koord status`` of a cluster that no ``koord up`` of this machine runs, and which cluster it asks about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from koordinator.api.node import LeaseSpec
from koordinator.api.timestamps import format_micro_time
from koordinator.cli.explain_cluster import Cluster
from koordinator.cli.explain_terminal import Terminal, text_of
from koordinator.cli.main import main
from koordinator.cli.status import print_cluster
from koordinator.cli.status_of_cluster import ClusterReport, Leader, document_of_cluster, leader_of
from koordinator.cli.status_report import Counts

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: local
contexts: [{name: local, context: {cluster: local, user: local}}]
clusters: [{name: local, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: local, user: {}}]
"""


def report(*leaders: Leader) -> ClusterReport:
    return ClusterReport(Cluster('the cluster "a"', None), leaders, Counts(3, 3, {"Running": 2}), 2)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (LeaseSpec(holder_identity="a_1", renew_time=format_micro_time(NOW), lease_duration_seconds=15), ""),
        (LeaseSpec(), "no replica holds its Lease"),
        (
            LeaseSpec(holder_identity="a_1", renew_time=format_micro_time(NOW - timedelta(seconds=16))),
            "its Lease has run out: the program has ended, or hangs",
        ),
        (
            LeaseSpec(holder_identity="a_1", renew_time="yesterday"),
            "its Lease has run out: the program has ended, or hangs",
        ),
    ],
)
def test_a_program_runs_while_its_lease_is_renewed(spec: LeaseSpec, error: str) -> None:
    assert leader_of("scheduler", spec, NOW).error == error


@pytest.mark.parametrize(("program", "status"), [("scheduler", 1), ("manager", 1), ("descheduler", 0)])
def test_a_cluster_may_do_without_a_descheduler(program: str, status: int) -> None:
    assert report(Leader(program, error="it does not run here")).exit_status == status


def test_the_report_says_who_leads_and_who_does_not() -> None:
    console = Terminal(piped=True).console()
    found = report(Leader("scheduler", "vm_1", NOW), Leader("manager", error="it does not run here"))
    print_cluster(found, NOW + timedelta(seconds=4), console)
    lines = text_of(console).splitlines()
    assert lines[0] == 'the cluster "a" is not healthy: manager'
    assert "scheduler  yes    vm_1    4s ago" in lines
    assert lines[-1] == "manager: it does not run here"
    assert [each["healthy"] for each in document_of_cluster(found)["programs"]] == [True, False]


def test_a_kubeconfig_of_a_data_folder_leads_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "second"
    folder.mkdir()
    (folder / ".koordinator").touch()
    (folder / "kubeconfig").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(folder / "kubeconfig"))
    assert main(["status"]) == 3
    assert f"Nothing runs on {folder}." in capsys.readouterr().out


def test_a_cluster_that_does_not_respond_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config").write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert main(["status"]) == 1
    assert "connection refused" in capsys.readouterr().err


def test_a_long_name_is_whole_where_no_terminal_is() -> None:
    name = "ip-10-0-12-34.eu-central-1.compute.internal_" + "0" * 60
    console = Terminal(piped=True).console()
    print_cluster(report(Leader("scheduler", name, NOW)), NOW, console)
    (row,) = (line for line in text_of(console).splitlines() if line.startswith("scheduler "))
    assert name in row
