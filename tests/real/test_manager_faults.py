"""koord-manager where things break: the API server is killed or out of reach, the leader dies.

However it goes, one replica leads at a time, what was changed meanwhile is seen to, once, and the process stays.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.booked_cluster import METRICS, NODES, SLOS, Cluster, booked_cluster
from tests.real.manager_cluster import gates, install
from tests.real.manager_process import OURS, ManagerProcess, manager
from tests.real.programs import RealPrograms
from tests.real.severed_connection import severable
from tests.real.test_manager_webhooks import agreed

METRIC = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "spec": {}}
CONTROLLERS_ALONE = "--feature-gates=WebhookFramework=false"
LEADS = "koordinator_manager_is_leader"
LONGEST_PAUSE = 30.0
SHARED = {"WEBHOOK_CERT_WRITER": "secret"}


@pytest.fixture(scope="module")
def cluster(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane of this module's own: it is broken here."""
    with booked_cluster(real_programs, tmp_path_factory.mktemp("faults")) as made:
        yield made


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[Cluster]:
    """Nodes ``a`` and ``b``, and 65 percent of them to be used."""
    cluster.configure(65)
    for name in ("a", "b"):
        cluster.add_node(name)
    yield cluster
    for name in ("a", "b", "c"):
        for path in (NODES, METRICS, SLOS):
            cluster.plane.request("DELETE", f"{path}/{name}")


def listens(replica: ManagerProcess) -> bool:
    try:
        return LEADS in replica.metrics()
    except OSError:
        return False


def leads(replica: ManagerProcess) -> bool:
    return listens(replica) and f"{LEADS} 1.0" in replica.metrics()


def ready_nodes(cluster: Cluster, replica: ManagerProcess) -> None:
    """The objects of the nodes are there, the first reports are in, and what they make free is offered."""
    for name in ("a", "b"):
        for path in (METRICS, SLOS):
            replica.wait(lambda path=path, name=name: cluster.exists(f"{path}/{name}"), path)  # type: ignore[misc]
        cluster.report(name, 40)
    replica.wait(lambda: cluster.offered("a") == cluster.offered("b") == "25k", "batch CPU")


def processor_seconds(replica: ManagerProcess) -> float:
    """What the process has used of CPUs so far."""
    fields = Path(f"/proc/{replica.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pauses(replica: ManagerProcess) -> list[float]:
    """The seconds that the log says until next attempts."""
    return [float(each) for each in re.findall(r"next attempt in ([0-9.]+)s", replica.log.read_text())]


def test_an_api_server_that_is_killed_under_it_and_comes_back(nodes: Cluster, tmp_path: Path) -> None:
    cluster = nodes
    with manager(OURS, cluster.plane.kubeconfig, tmp_path, arguments=(CONTROLLERS_ALONE,)) as running:
        running.wait(lambda: leads(running), "lead")
        ready_nodes(cluster, running)
        before = cluster.writes()
        cluster.plane.kill_api_server()
        running.wait(lambda: not leads(running), "loss of the lead")
        used, since = processor_seconds(running), time.monotonic()
        running.wait(lambda: time.monotonic() > since + 20, "time")
        share = (processor_seconds(running) - used) / (time.monotonic() - since)
        assert share < 0.2, "it asks in vain, but it does not spin"
        cluster.plane.start_api_server()
        cluster.report("a", 60)
        running.wait(lambda: leads(running), "lead again")
        running.wait(lambda: cluster.offered("a") == "5k", "what was reported since")
        assert 0 < max(pauses(running)) <= LONGEST_PAUSE
        assert cluster.writes() - before == {"patch nodes a": 1}
        assert running.stop() == 0


def test_what_is_changed_while_it_is_out_of_reach_is_seen_to_afterwards(nodes: Cluster, tmp_path: Path) -> None:
    cluster = nodes
    with (
        severable(cluster.plane.kubeconfig, tmp_path) as (connection, kubeconfig),
        manager(OURS, kubeconfig, tmp_path, arguments=(CONTROLLERS_ALONE,)) as running,
    ):
        running.wait(lambda: leads(running), "lead")
        ready_nodes(cluster, running)
        connection.cut()
        running.wait(lambda: not leads(running), "loss of the lead")
        before = cluster.writes()
        cluster.request("DELETE", f"{NODES}/b")
        cluster.add_node("c")
        cluster.configure(75)
        cluster.report("a", 60)
        connection.mend()
        running.wait(lambda: leads(running), "lead again")
        running.wait(lambda: cluster.offered("a") == "15k", "what was reported and configured since")
        for path in (METRICS, SLOS):
            running.wait(lambda path=path: cluster.exists(f"{path}/c"), "objects of the new node")  # type: ignore[misc]
            running.wait(lambda path=path: not cluster.exists(f"{path}/b"), "end of the old")  # type: ignore[misc]
        written = cluster.writes() - before
        # Once for the report and once for the configuration, which come by ways of their own.
        assert written.pop("patch nodes a") <= 2
        assert written.pop("patch nodes c", 1) == 1
        kinds = ("nodemetrics", "nodeslos")
        assert written == Counter([f"delete {kind} b" for kind in kinds] + [f"create {kind} c" for kind in kinds])
        assert running.stop() == 0


def test_the_other_replica_takes_over_from_a_leader_that_is_killed(nodes: Cluster, tmp_path: Path) -> None:
    cluster = nodes
    install(cluster.plane)
    with (
        manager(OURS, cluster.plane.kubeconfig, tmp_path / "1", arguments=(gates(),), environment=SHARED) as one,
        manager(OURS, cluster.plane.kubeconfig, tmp_path / "2", arguments=(gates(),), environment=SHARED) as two,
    ):
        for replica in (one, two):
            replica.wait_ready()
        one.wait(lambda: leads(one) or leads(two), "leader")
        leader, other = (one, two) if leads(one) else (two, one)
        assert not leads(other)
        ready_nodes(cluster, leader)
        assert agreed(cluster.plane, (one, two))
        before = cluster.writes()
        leader.process.kill()
        leader.process.wait()
        cluster.report("a", 60)
        # The configuration names one port alone, that of the replica that wrote it last.
        other.wait(lambda: leads(other), "take-over")
        other.wait(lambda: cluster.offered("a") == "5k", "what was reported since")
        assert cluster.writes() - before == {"patch nodes a": 1}
        assert other.ready()
        assert other.stop() == 0


@pytest.mark.parametrize(
    ("amount", "code"), [("abc", 422), ("NaN", 422), ("5 cores", 422), (True, 422), ("-5", 200), ("1e30", 200)]
)
def test_what_is_no_amount_is_not_stored_and_what_makes_no_sense_is(cluster: Cluster, amount: Any, code: int) -> None:
    """So the manager has to live with the latter."""
    cluster.plane.request("POST", METRICS, {**METRIC, "metadata": {"name": "n"}})
    status = {"nodeMetric": {"nodeUsage": {"resources": {"cpu": amount}}}}
    answered, response = cluster.plane.request("PATCH", f"{METRICS}/n/status", {"status": status})
    assert answered == code, response
    cluster.request("DELETE", f"{METRICS}/n")


def test_two_replicas_write_everything_once(nodes: Cluster, tmp_path: Path) -> None:
    cluster, arguments = nodes, (CONTROLLERS_ALONE,)
    before = cluster.writes()
    with (
        manager(OURS, cluster.plane.kubeconfig, tmp_path / "1", arguments=arguments) as one,
        manager(OURS, cluster.plane.kubeconfig, tmp_path / "2", arguments=arguments) as two,
    ):
        for replica in (one, two):
            replica.wait(lambda replica=replica: listens(replica), "answer")  # type: ignore[misc]
        one.wait(lambda: leads(one) or leads(two), "leader")
        ready_nodes(cluster, one)
        for cpu in (60, 20):
            cluster.report("a", cpu)
            one.wait(lambda cpu=cpu: cluster.offered("a") == f"{65 - cpu}k", "the next amount")  # type: ignore[misc]
        written = cluster.writes() - before
        assert {name: written[f"create {name}"] for name in ("nodemetrics a", "nodeslos a")} == {
            "nodemetrics a": 1,
            "nodeslos a": 1,
        }
        # That there is a node, its first report, and the two that followed.
        assert 3 <= written["patch nodes a"] <= 4
        assert sorted((leads(one), leads(two))) == [False, True]
        assert (one.stop(), two.stop()) == (0, 0)
