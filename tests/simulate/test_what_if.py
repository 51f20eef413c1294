"""What holds for every what-if: nothing of nothing, the same of the same, and only the effect of the change."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.json import encode

from koordinator.api.kinds import ELASTIC_QUOTAS, POD_GROUPS
from koordinator.cli.local_cluster.programs import shipped_file
from koordinator.scheduler.configuration import SchedulerConfiguration, load_configuration
from koordinator.scheduler.configuration.loading import parse_configuration
from koordinator.simulate.node_changes import Drain
from koordinator.simulate.object_changes import Apply
from koordinator.simulate.snapshot import save
from koordinator.simulate.what_if import what_if
from tests.examples import examples
from tests.simulate.clusters import WEB_OWNER, Document, cluster, node, outcome_of, places, pod, put, snapshot_of


@pytest.fixture(scope="module")
def koordinator() -> SchedulerConfiguration:
    """The configuration of ``koord up``: all plugins."""
    return load_configuration(shipped_file("scheduler.yaml"))


_NODES = st.lists(st.integers(1, 8), min_size=1, max_size=5)
_PODS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.booleans()), max_size=12)


@given(_NODES, _PODS)
@settings(max_examples=examples(20), deadline=None)
def test_a_what_if_of_nothing_changes_nothing(nodes: list[int], pods: list[tuple[int, int, bool]]) -> None:
    names = [f"node-{number}" for number in range(len(nodes))]
    api = cluster(
        [node(name, str(cpu)) for name, cpu in zip(names, nodes, strict=True)],
        [
            # Of a node that is not there, of one that is full, and of none.
            pod(f"pod-{index}", names[where] if where < len(names) else "", str(cpu), WEB_OWNER if owned else None)
            for index, (where, cpu, owned) in enumerate(pods)
        ],
    )
    outcome = outcome_of(api)
    assert outcome["placed"] == outcome["departed"] == outcome["pending"] == outcome["nodes"] == []
    assert outcome["before"]["pending"] == outcome["after"]["pending"]
    assert outcome["settled"]


def _busy() -> Document:
    """A cluster in which many nodes are as good as others."""
    pods = [pod(f"web-{number}", f"node-{number % 4}", owner=WEB_OWNER) for number in range(16)]
    return {"nodes": [node(f"node-{number}") for number in range(10)], "pods": pods}


def test_the_same_snapshot_and_change_give_the_same_result() -> None:
    snapshot = snapshot_of(cluster(**_busy()))
    first, second = (asyncio.run(what_if(snapshot, [Drain(["node-0", "node-1"])])) for _ in range(2))
    assert len(first["placed"]) == 8
    assert encode(first) == encode(second)


_IN_ANOTHER_PROCESS = """
import asyncio, sys
from pathlib import Path
from koordinator.simulate.node_changes import Drain
from msgspec.json import encode
from koordinator.simulate.snapshot import load
from koordinator.simulate.what_if import what_if
sys.stdout.buffer.write(encode(asyncio.run(what_if(load(Path(sys.argv[1])), [Drain(["node-0", "node-1"])]))))
"""


def test_another_process_gives_the_same_result(tmp_path: Path) -> None:
    """Whatever order Python's sets have there."""
    snapshot = snapshot_of(cluster(**_busy()))
    save(snapshot, tmp_path / "snapshot")
    here = encode(asyncio.run(what_if(snapshot, [Drain(["node-0", "node-1"])])))
    environment = {"PYTHONHASHSEED": "77", "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", _IN_ANOTHER_PROCESS, str(tmp_path / "snapshot")]
    there = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    assert there == here


def test_what_would_happen_anyway_is_not_counted() -> None:
    api = cluster(
        [node("a", "4"), node("b", "4")], [pod("soon"), pod("never", cpu="9"), pod("web-1", "a", owner=WEB_OWNER)]
    )
    outcome = outcome_of(api, Drain(["a"], force=True))
    assert outcome["before"] == {"wouldBePlaced": 1, "pending": 1}
    moved = {each["replaces"]["pod"] for each in outcome["placed"]}
    assert "default/web-1" in moved
    assert outcome["pending"] == []


def test_pods_that_were_leaving_are_gone_and_those_that_are_stuck_are_not() -> None:
    leaving, stuck = pod("leaving", "a", "3"), pod("stuck", "b", "3")
    leaving["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:20Z", "deletionGracePeriodSeconds": 30}
    stuck["metadata"] |= {"deletionTimestamp": "2025-12-31T00:00:00Z", "deletionGracePeriodSeconds": 30}
    api = cluster([node("a", "4"), node("b", "4")], [leaving, stuck])
    outcome = outcome_of(api, Apply([pod("new-1", cpu="4"), pod("new-2", cpu="4")]))
    assert places(outcome) == {"a": 1}
    assert outcome["departed"] == []


def test_nodes_that_are_as_good_are_reported() -> None:
    outcome = outcome_of(cluster([node("a"), node("b")]), Apply([pod("x")]))
    assert outcome["placed"][0]["nodesWithTheSameScore"] == outcome["placed"][0]["feasibleNodes"] == 2


def test_pods_of_other_schedulers_are_left_to_these() -> None:
    outcome = outcome_of(cluster([node("a")]), Apply([pod("x", schedulerName="other")]))
    assert outcome["pending"][0]["message"] == "is left to the scheduler 'other', which is not simulated"


def test_pods_of_kube_scheduler_beside_ours_are_placed_as_it_does() -> None:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    ours = parse_configuration(f"{head}profiles: [{{schedulerName: koord-scheduler}}]", "ours")
    pods = [pod("web-1", "a", "3", WEB_OWNER), pod("new", cpu="4")]
    pods[1]["spec"]["schedulerName"] = "koord-scheduler"
    api = cluster([node("a", "4"), node("b", "6")], pods)
    outcome = outcome_of(api, Drain(["a"]), configuration=ours)
    assert outcome["before"] == {"wouldBePlaced": 1, "pending": 0}
    assert outcome["scheduler"]["kubeScheduler"]
    (group,) = outcome["pending"]
    # One scheduler's pod is in the way of the other's.
    assert "1 Insufficient cpu" in group["message"]


def _pod_group(least: int) -> Document:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "default"},
        "spec": {"minMember": least, "scheduleTimeoutSeconds": 600},
    }


def _members(count: int) -> list[Document]:
    found = [pod(f"member-{number}", cpu="2") for number in range(count)]
    for each in found:
        each["metadata"]["labels"]["pod-group.scheduling.sigs.k8s.io"] = "gang"
    return found


def test_a_gang_gets_all_its_nodes_or_none(koordinator: SchedulerConfiguration) -> None:
    api = cluster([node("a", "4"), node("b", "4")])
    outcome = outcome_of(api, Apply([_pod_group(4), *_members(4)]), configuration=koordinator)
    assert places(outcome) == {"a": 2, "b": 2}
    outcome = outcome_of(api, Apply([_pod_group(5), *_members(5)]), configuration=koordinator)
    assert outcome["placed"] == []
    assert sum(len(group["pods"]) for group in outcome["pending"]) == 5
    assert all(each["resources"]["cpu"]["after"]["percent"] == 0 for each in outcome["nodes"])


def test_the_rest_of_a_gang_that_is_there_lets_it_go(koordinator: SchedulerConfiguration) -> None:
    api = put(cluster([node("a", "8")], _members(2)), POD_GROUPS, _pod_group(3))
    last = _members(3)[-1]
    outcome = outcome_of(api, Apply([last]), configuration=koordinator)
    assert outcome["before"]["pending"] == 2
    assert places(outcome) == {"a": 3}


def _quota(most: str) -> Document:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "team", "namespace": "default"},
        "spec": {"min": {"cpu": "1"}, "max": {"cpu": most}},
    }


def test_a_quota_that_is_raised_lets_its_pods_go(koordinator: SchedulerConfiguration) -> None:
    waiting = [pod(f"web-{number}", cpu="2", owner=WEB_OWNER) for number in range(3)]
    for each in waiting:
        each["metadata"]["labels"]["quota.scheduling.koordinator.sh/name"] = "team"
    api = put(cluster([node("a", "16")], waiting), ELASTIC_QUOTAS, _quota("2"))
    outcome = outcome_of(api, Apply([_quota("4")]), configuration=koordinator)
    assert outcome["changes"] == ["ElasticQuota default/team is changed"]
    assert outcome["before"] == {"wouldBePlaced": 1, "pending": 2}
    assert places(outcome) == {"a": 1}
    assert outcome["after"] == {"pending": 1}
    (cpu,) = [each for each in outcome["quotas"] if each["quota"] == "team" and each["resource"] == "cpu"]
    assert cpu["before"] == {"used": "2", "request": "6", "runtime": "2", "max": "2"}
    assert cpu["after"] == {"used": "4", "request": "6", "runtime": "4", "max": "4"}


def test_a_reservation_gets_a_node_and_takes_room(koordinator: SchedulerConfiguration) -> None:
    reservation = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "release"},
        "spec": {
            "ttl": "1h",
            "allocateOnce": False,
            "owners": [{"labelSelector": {"matchLabels": {"app": "owner"}}}],
            "template": {"spec": pod("x", cpu="6")["spec"]},
        },
    }
    api = cluster([node("a", "8")])
    outcome = outcome_of(
        api, Apply([reservation]), Apply([pod("other", cpu="4"), pod("owner", cpu="4")]), configuration=koordinator
    )
    assert outcome["reservations"] == [{"reservation": "release", "node": "a"}]
    assert [each["pod"] for each in outcome["placed"]] == ["default/owner"]
    assert [each["pod"] for group in outcome["pending"] for each in group["pods"]] == ["default/other"]


def test_what_ends_the_scheduler_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: Any) -> None:
        raise RuntimeError("the informers have failed")

    monkeypatch.setattr("koordinator.kube.informer_set.InformerSet.run", fail)
    with pytest.raises(ExceptionGroup) as raised:
        outcome_of(cluster([node("a")]))
    assert "the informers have failed" in repr(raised.value)


def test_what_the_scheduler_logs_is_part_of_the_result(capfd: pytest.CaptureFixture[str]) -> None:
    broken = node("broken")
    broken["status"]["allocatable"] = {"cpu": "many"}
    outcome = outcome_of(cluster([node("a"), broken]), Apply([pod("x")]))
    assert places(outcome) == {"a": 1}
    assert any("broken" in line and line.startswith("warning: ") for line in outcome["log"])
    assert capfd.readouterr().err == ""


def test_a_configuration_of_the_cluster_counts() -> None:
    snapshot = snapshot_of(cluster([node("a")]))
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    text = f"{head}profiles: [{{schedulerName: mine}}]"
    given = replace(snapshot, scheduler_configuration=text, configuration_source="a ConfigMap")
    outcome = asyncio.run(what_if(given, []))
    assert outcome["scheduler"] == {"configuration": "a ConfigMap", "profiles": ["mine"], "kubeScheduler": True}
    outcome = asyncio.run(what_if(given, [], parse_configuration(text.replace("mine", "yours"), "file")))
    assert outcome["scheduler"]["configuration"] == "the file that was given"
    assert outcome["scheduler"]["profiles"] == ["yours"]
