"""Another configuration of the scheduler, another one of colocation, and several changes in one file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, PODS
from koordinator.base.errors import ConfigurationError
from koordinator.scheduler.configuration import SchedulerConfiguration, default_configuration
from koordinator.scheduler.configuration.loading import parse_configuration
from koordinator.simulate.change import ChangeError
from koordinator.simulate.change_file import read_changes
from koordinator.simulate.colocation import Colocation
from koordinator.simulate.node_changes import AddNodes, Drain, RemoveNodes
from koordinator.simulate.object_changes import Apply, Delete, Scale
from koordinator.simulate.reconfiguration import Reconfigure, replay
from tests.in_memory_api import InMemoryApi
from tests.simulate.clusters import WEB_OWNER, Document, cluster, node, outcome_of, places, pod, put, snapshot_of

_HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def _packing() -> SchedulerConfiguration:
    """The fullest node first."""
    text = f"""{_HEAD}
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      disabled: [{{name: NodeResourcesBalancedAllocation}}]
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy: {{type: MostAllocated, resources: [{{name: cpu, weight: 1}}]}}
"""
    return parse_configuration(text, "packing")


def test_pods_that_have_a_node_keep_it_and_others_are_placed_by_the_new_configuration() -> None:
    api = cluster([node("a"), node("b")], [pod("x", "a"), pod("theirs", schedulerName="mine")])
    mine = parse_configuration(f"{_HEAD}profiles: [{{schedulerName: mine}}]", "mine")
    outcome = outcome_of(api, Reconfigure(mine, "mine.yaml"))
    assert outcome["changes"] == ["the scheduler runs with mine.yaml"]
    assert places(outcome) == {"b": 1}
    assert outcome["departed"] == []


def test_all_pods_are_placed_anew_under_both_configurations() -> None:
    pods = [pod(f"web-{number}", "a", owner=WEB_OWNER) for number in range(4)]
    agent = pod("agent", "b", owner={**WEB_OWNER, "kind": "DaemonSet"})
    snapshot = snapshot_of(cluster([node("a"), node("b"), node("c")], [*pods, agent, pod("never", cpu="99")]))
    found = asyncio.run(replay(snapshot, default_configuration(), _packing()))
    assert found["pods"] == 5
    assert found["pending"] == {"before": 1, "after": 1}
    # What the agent requests makes its node the fullest.
    assert found["nodesInUse"] == {"before": 3, "after": 1}
    assert found["podsPerNode"]["after"] == {"least": 4, "median": 4, "most": 4}
    assert found["pendingOnlyAfter"] == found["placedOnlyAfter"] == []


def test_the_same_configuration_places_pods_alike() -> None:
    pods = [pod(f"web-{number}", "a", owner=WEB_OWNER) for number in range(6)]
    snapshot = snapshot_of(cluster([node(name) for name in "abcdef"], pods))
    found = asyncio.run(replay(snapshot, default_configuration(), default_configuration()))
    assert found["onOtherNodes"] == 0


def _colocation(**strategy: Any) -> dict[str, str]:
    return {"colocation-config": json.dumps({"enable": True, **strategy})}


def _colocated(data: dict[str, str] | None = None, batch: str = "1000", free: str = "") -> InMemoryApi:
    lending = node("a", "10")
    lent = {"kubernetes.io/batch-cpu": batch} | ({"kubernetes.io/free-cpu": free} if free else {})
    for part in ("capacity", "allocatable"):
        lending["status"][part] = {**lending["status"][part], **lent}
    api = cluster([lending])
    usage = {"resources": {"cpu": "2", "memory": "4Gi"}}
    metric = {"nodeUsage": usage, "systemUsage": usage}
    status = {"updateTime": "2026-01-01T00:00:00Z", "nodeMetric": metric}
    put(api, NODE_METRICS, {"metadata": {"name": "a"}, "spec": {}, "status": status})
    metadata = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    return put(api, CONFIG_MAPS, {"metadata": metadata, "data": data or _colocation()})


def _batch_pod(name: str, cpu: str) -> Document:
    found = pod(name, owner=WEB_OWNER)
    found["spec"]["containers"][0]["resources"]["requests"] = {"kubernetes.io/batch-cpu": cpu}
    return found


def test_a_colocation_configuration_gives_nodes_batch_capacity_that_pods_take() -> None:
    api = _colocated()
    for name in ("batch-1", "batch-2"):
        put(api, PODS, _batch_pod(name, "3000"))
    outcome = outcome_of(api, Colocation(_colocation(cpuReclaimThresholdPercent=80)))
    (found,) = outcome["colocation"]["nodes"]
    # 10 cores, 80 % of which may be used, less the 2 that the system uses.
    assert found["amounts"]["kubernetes.io/batch-cpu"] == {"before": 1000, "after": 6000}
    assert outcome["colocation"]["total"]["kubernetes.io/batch-cpu"]["after"] == 6000
    assert places(outcome) == {"a": 2}
    assert outcome["before"]["pending"] == 2


def test_free_capacity_is_computed_where_nodes_have_it() -> None:
    api = _colocated(free="500")
    outcome = outcome_of(api, Colocation(_colocation(cpuReclaimThresholdPercent=80)))
    (found,) = outcome["colocation"]["nodes"]
    assert found["amounts"]["kubernetes.io/free-cpu"] == {"before": 500, "after": 6000}
    assert "noCapacity" not in found


def test_pods_that_request_more_than_there_is_then_are_reported() -> None:
    running = _batch_pod("batch-1", "900")
    running["spec"]["nodeName"] = "a"
    running["status"] = {"phase": "Running"}
    api = put(_colocated(), PODS, running)
    outcome = outcome_of(api, Colocation({"colocation-config": json.dumps({"enable": False})}))
    (found,) = outcome["colocation"]["nodes"]
    assert found["noCapacity"] == "colocation is disabled for the node"
    assert outcome["colocation"]["overused"] == [
        {"node": "a", "resource": "kubernetes.io/batch-cpu", "requested": "900m", "allocatable": "0m"}
    ]
    assert outcome["departed"] == []


def test_what_koord_manager_would_refuse_is_refused() -> None:
    with pytest.raises(
        ChangeError, match=r"koord-manager would refuse it: .*CPUReclaimThresholdPercent must be 0 or greater"
    ):
        outcome_of(_colocated(), Colocation(_colocation(cpuReclaimThresholdPercent=-5)))
    with pytest.raises(ChangeError, match="koord-manager would refuse it"):
        outcome_of(_colocated(), Colocation({"colocation-config": "{"}))


def test_a_node_that_is_added_lends_what_an_empty_node_does() -> None:
    outcome = outcome_of(_colocated(_colocation(cpuReclaimThresholdPercent=50)), AddNodes("a"))
    (added,) = outcome["nodes"]
    # Half of 10 cores, less the 2 of the system; not the 1 that the other node says.
    assert added["resources"]["kubernetes.io/batch-cpu"]["after"]["allocatable"] == "3000m"


def _read(text: str) -> list[Any]:
    return list(read_changes(text, "plan.yaml", Path("/plans"), "shop", lambda paths: [{"paths": list(paths)}]))


def test_a_file_has_several_changes() -> None:
    changes = _read("""
changes:
- addNodes: {like: node-1, count: 2, labels: {zone: b}}
- drain: {nodes: [node-2, node-3], force: true}
- removeNodes: {nodes: [node-4]}
- scale: {workload: deployment/web, replicas: 0}
- scale: {workload: deployment/web, replicas: 3, namespace: other}
- apply: {files: [web.yaml], replicas: 7}
- delete: {object: elasticquota/team}
""")
    assert changes[0] == AddNodes("node-1", 2, (("zone", "b"),))
    assert changes[1] == Drain(["node-2", "node-3"], force=True)
    assert changes[2] == RemoveNodes(["node-4"])
    assert isinstance(changes[3], Scale)
    assert (changes[3].workload.namespace, changes[4].workload.namespace) == ("shop", "other")
    assert changes[5] == Apply([{"paths": ["/plans/web.yaml"]}], "shop", 7)
    assert changes[6] == Delete("elasticquota", "team", "shop")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "a mapping with the list changes"),
        ("changes: []", "plan.yaml: changes: [] is not usable: a list with at least one of apply, scale"),
        ("change: [x]", "plan.yaml: change: ['x'] is not usable: no such field; there is changes"),
        ("changes: [drain]", "changes[0]: 'drain' is not usable: one of apply, scale"),
        ("changes: [{drain: {nodes: [a]}, scale: {}}]", "nothing beside it"),
        ("changes: [{drian: {nodes: [a]}}]", "changes[0].drian: {'nodes': ['a']} is not usable: no such change; there"),
        ("changes: [{drain: {node: a}}]", "changes[0].drain.node: 'a' is not usable: no such field; there are nodes"),
        ("changes: [{drain: {nodes: a}}]", "changes[0].drain.nodes: 'a' is not usable"),
        ("changes: [{drain: {nodes: []}}]", "changes[0].drain.nodes: [] is not usable: at least one name"),
        ("changes: [{drain: [a]}]", "changes[0].drain: ['a'] is not usable: a mapping"),
        ("changes: [{addNodes: {count: 2}}]", "changes[0].addNodes.like: None is not usable: it must be given"),
        ("changes: [{addNodes: {like: a, count: 0}}]", "count: 0 is not usable: a number from 1 on"),
        ("changes: [{scale: {workload: deploy/x, replicas: -1}}]", "replicas: -1 is not usable: a number from 0 on"),
        ("changes: [{colocation: {file: x}}]", "changes[0].colocation.file: 'None' is not usable: the one ConfigMap"),
        ("changes: [{delete: {object: x}}]", "changes[0].delete.object: 'x' is not usable: KIND/NAME is needed"),
        ("changes: [{drain: {nodes: [a], nodes: [b]}}]", "a key may stand only once"),
    ],
)
def test_a_mistake_in_a_file_is_reported_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        _read(text)
    assert said in str(raised.value)


def test_a_workload_that_is_none_is_reported_with_its_place() -> None:
    with pytest.raises(ChangeError, match=r"changes\[0\].scale: 'web' is no workload"):
        _read("changes: [{scale: {workload: web, replicas: 1}}]")


def test_changes_are_made_one_after_the_other() -> None:
    api = cluster([node("a", "4")], [pod("web-1", "a", "4", WEB_OWNER)])
    outcome = outcome_of(api, AddNodes("a"), Drain(["a"]))
    assert outcome["changes"] == ["node a-what-if-1 like a is added", "node a is drained"]
    assert places(outcome) == {"a-what-if-1": 1}
