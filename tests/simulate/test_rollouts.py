"""Pods of workloads are created, replaced and deleted as the controllers of the workloads do it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koordinator.api.kinds import DEPLOYMENTS, JOBS, NODES, PODS, STATEFUL_SETS
from koordinator.cluster.controllers.deployment.controller import DeploymentController
from koordinator.cluster.controllers.replica_set.controller import ReplicaSetController
from koordinator.cluster.controllers.stateful_set.controller import StatefulSetController
from koordinator.simulate.object_changes import Apply, Delete, Scale
from koordinator.simulate.workloads import parse_workload
from tests.cluster.controllers.running_controllers import running_controllers
from tests.in_memory_api import InMemoryApi
from tests.simulate.clusters import Document, cluster, deployment, node, outcome_of, places, pod, put


def _stateful(replicas: int, cpu: str, **spec: Any) -> Document:
    found = {**deployment("db", replicas, cpu), "kind": "StatefulSet"}
    found["spec"] |= spec
    return found


def _job(parallelism: int, **spec: Any) -> Document:
    found = deployment("sum", 0, restartPolicy="Never")
    del found["spec"]["replicas"], found["spec"]["selector"]
    found["spec"] |= {"parallelism": parallelism, **spec}
    return found | {"apiVersion": "batch/v1", "kind": "Job"}


def _placed(outcome: Document) -> list[str]:
    return sorted(each["pod"].partition("/")[2] for each in outcome["placed"])


def test_a_workload_whose_template_changes_gets_new_pods() -> None:
    api = put(cluster([node("a")]), DEPLOYMENTS, deployment("web", 2))
    outcome = outcome_of(api, Apply([deployment("web", 2)]), Apply([deployment("web", 2, "2")]))
    assert outcome["blocked"] == outcome["notes"] == []
    assert places(outcome) == {"a": 2}
    (changed,) = outcome["nodes"]
    assert changed["resources"]["cpu"]["after"]["requested"] == "4 cores"


def test_a_rollout_that_does_not_fit_beside_the_old_pods_stops() -> None:
    """Of four pods one more may be there meanwhile, and one may be missing: 3 old ones and a new one is as far as it
    gets where a new one needs the free capacity of three."""
    api = cluster([node("a", "5")])
    outcome = outcome_of(api, Apply([deployment("web", 4)]), Apply([deployment("web", 4, "3")]))
    assert outcome["blocked"] == [
        "deployment default/web: the rollout stops, 0 of 4 new pods have a node, 3 old ones stay"
    ]
    (changed,) = outcome["nodes"]
    assert changed["resources"]["cpu"]["after"]["requested"] == "3 cores"
    recreated = deployment("web", 4, "1200m")
    recreated["spec"]["strategy"] = {"type": "Recreate"}
    outcome = outcome_of(api, Apply([deployment("web", 4)]), Apply([recreated]))
    assert outcome["blocked"] == []
    assert places(outcome) == {"a": 4}


def test_a_rollout_goes_through_where_each_step_fits() -> None:
    api = cluster([node("a", "8"), node("b", "8")])
    outcome = outcome_of(api, Apply([deployment("web", 6, "2")]), Apply([deployment("web", 6, "2500m")]))
    assert outcome["blocked"] == outcome["pending"] == []
    assert sum(places(outcome).values()) == 6


def test_a_stateful_set_is_renewed_from_the_highest_number_on_until_a_pod_has_no_node() -> None:
    def stateful(cpu: str) -> Document:
        return {**deployment("db", 3, cpu), "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "default"}}

    outcome = outcome_of(cluster([node("a", "8")]), Apply([stateful("2")]), Apply([stateful("2500m")]))
    assert outcome["blocked"] == []
    assert sorted(each["pod"] for each in outcome["placed"]) == ["default/db-0", "default/db-1", "default/db-2"]
    outcome = outcome_of(cluster([node("a", "8")]), Apply([stateful("2")]), Apply([stateful("5")]))
    assert outcome["blocked"] == [
        "statefulset default/db: the rollout stops at db-2, which has no node; 2 old pods stay"
    ]


def test_a_new_annotation_of_the_template_is_a_rollout_too() -> None:
    restarted = deployment("web", 2)
    restarted["spec"]["template"]["metadata"]["annotations"] = {"kubectl.kubernetes.io/restartedAt": "now"}
    outcome = outcome_of(cluster([node("a")]), Apply([deployment("web", 2)]), Apply([restarted]))
    assert outcome["changes"][-1] == "deployment default/web is changed; it has 2 pods"


def test_what_a_container_runs_affects_no_node() -> None:
    """A snapshot does not keep it, so that a change of it is not a new template."""
    other = deployment("web", 2)
    other["spec"]["template"]["spec"]["containers"][0]["command"] = ["sleep"]
    outcome = outcome_of(cluster([node("a")]), Apply([deployment("web", 2)]), Apply([other]))
    assert outcome["changes"][-1] == "deployment default/web is changed from 2 to 2 pods"


def test_a_deployment_that_is_paused_keeps_its_pods() -> None:
    paused = deployment("web", 2, "2")
    paused["spec"]["paused"] = True
    outcome = outcome_of(cluster([node("a")]), Apply([deployment("web", 2)]), Apply([paused]))
    assert outcome["blocked"] == ["deployment default/web: it is paused, 0 of 2 new pods have a node, 2 old ones stay"]
    (changed,) = outcome["nodes"]
    assert changed["resources"]["cpu"]["after"]["requested"] == "2 cores"


def test_a_rollout_waits_until_pods_have_been_ready_for_long_enough() -> None:
    first, second = deployment("web", 2), deployment("web", 2, "2")
    for each in (first, second):
        each["spec"]["minReadySeconds"] = 300
    outcome = outcome_of(cluster([node("a")]), Apply([first]), Apply([second]))
    assert outcome["blocked"] == []
    assert places(outcome) == {"a": 2}


def test_a_deployment_that_is_deleted_may_come_back() -> None:
    changes = Apply([deployment("web", 2)]), Delete("deployment", "web"), Apply([deployment("web", 3)])
    assert places(outcome_of(cluster([node("a")]), *changes)) == {"a": 3}


def test_a_stateful_set_names_its_pods_and_loses_those_with_the_highest_number() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "uid-of-db", "controller": True}
    stateful = deployment("db", 2)
    stateful |= {"metadata": {"name": "db", "namespace": "default", "uid": "uid-of-db"}}
    stateful["status"] = {"currentRevision": "db-1a2b", "updateRevision": "db-1a2b"}
    pods = [pod("db-0", "a", owner=owner), pod("db-1", "a", owner=owner)]
    for each in pods:
        each["metadata"]["labels"]["controller-revision-hash"] = "db-1a2b"
    api = cluster([node("a")], pods)
    put(api, STATEFUL_SETS, stateful)
    outcome = outcome_of(api, Scale(parse_workload("sts/db", "default"), 4))
    assert [each["pod"] for each in outcome["placed"]] == ["default/db-2", "default/db-3"]
    outcome = outcome_of(api, Scale(parse_workload("sts/db", "default"), 1))
    assert [each["pod"] for each in outcome["departed"]] == ["default/db-1"]


def test_a_stateful_set_starts_a_pod_only_when_those_before_it_run() -> None:
    api = cluster([node("a", "3")])
    outcome = outcome_of(api, Apply([_stateful(4, "2")]))
    assert _placed(outcome) == ["db-0"]
    assert [each["pod"] for each in outcome["pending"][0]["pods"]] == ["default/db-1"]
    assert outcome["blocked"] == [
        "statefulset default/db: the rollout stops at db-1, which has no node; 2 pods are not created"
    ]
    outcome = outcome_of(api, Apply([_stateful(4, "2", podManagementPolicy="Parallel")]))
    assert len(outcome["pending"][0]["pods"]) == 3
    assert outcome["blocked"] == []


@pytest.mark.parametrize("before", [1, 3])
def test_pods_below_a_partition_have_the_template_before(before: int) -> None:
    partitioned = _stateful(3, "2", updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 2}})
    outcome = outcome_of(cluster([node("a")]), Apply([_stateful(before, "1")]), Apply([partitioned]))
    assert outcome["blocked"] == []
    (changed,) = outcome["nodes"]
    assert changed["resources"]["cpu"]["after"]["requested"] == "4 cores"


def test_a_stateful_set_that_is_updated_on_delete_keeps_its_pods() -> None:
    first, second = (_stateful(3, cpu, updateStrategy={"type": "OnDelete"}) for cpu in ("1", "2"))
    outcome = outcome_of(cluster([node("a")]), Apply([first]), Apply([second]))
    assert outcome["notes"] == ["statefulset default/db: the new template is that of new pods alone"]
    (changed,) = outcome["nodes"]
    assert changed["resources"]["cpu"]["after"]["requested"] == "3 cores"


def test_a_job_has_no_more_pods_than_it_needs_to_complete() -> None:
    outcome = outcome_of(cluster([node("a")]), Apply([_job(4, completions=2)]))
    assert places(outcome) == {"a": 2}
    outcome = outcome_of(cluster([node("a")]), Apply([_job(4, suspend=True)]))
    assert places(outcome) == {}
    outcome = outcome_of(cluster([node("a")]), Apply([_job(3)]), Scale(parse_workload("job/sum", "default"), 1))
    assert places(outcome) == {"a": 1}


@pytest.mark.parametrize("condition", ["Complete", "Failed"])
def test_a_job_that_has_ended_gets_no_pods(condition: str) -> None:
    ended = {**_job(1), "status": {"conditions": [{"type": condition, "status": "True"}]}}
    api = put(cluster([node("a")]), JOBS, ended)
    assert places(outcome_of(api, Scale(parse_workload("job/sum", "default"), 3))) == {}


def test_what_controllers_have_made_is_theirs_in_a_simulation_too() -> None:
    """Their ReplicaSets and revisions are recognised: nothing is replaced unless the template changes."""
    api = InMemoryApi()
    api.put(NODES, node("a", "20"))

    async def made() -> None:
        makers = (DeploymentController, ReplicaSetController, StatefulSetController)
        async with running_controllers(*makers, api=api) as running:
            await running.create(DEPLOYMENTS, "web", deployment("web", 2)["spec"])
            await running.create(STATEFUL_SETS, "db", _stateful(2, "1", podManagementPolicy="Parallel")["spec"])
            for each in await running.all_pods(4):
                await running.make_ready(each)
            await running.rest()

    asyncio.run(made())
    for each in api.all(PODS):
        api.put(PODS, {**each, "spec": {**each["spec"], "nodeName": "a"}})
    scaled = [Scale(parse_workload(text, "default"), 3) for text in ("deployment/web", "statefulset/db")]
    outcome = outcome_of(api, *scaled)
    assert outcome["departed"] == []
    assert len(outcome["placed"]) == 2
    outcome = outcome_of(api, Apply([deployment("web", 2, "2")]), Apply([_stateful(2, "2")]))
    assert len(outcome["departed"]) == len(outcome["placed"]) == 4
    assert outcome["blocked"] == []
