"""The whole fleet against an API server in memory, on a clock of the tests' own."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.kinds import LEASES, NODE_METRICS, NODES, PODS
from koordinator.api.nodemetric import NodeMetric
from koordinator.base.clock import ManualClock
from koordinator.cluster.nodes.fleet import Fleet
from koordinator.cluster.nodes.node_objects import FLEET_ANNOTATION
from koordinator.cluster.nodes.pod_runtime import RUN_TIME_ANNOTATION
from koordinator.cluster.nodes.registration import ForeignNodeError
from koordinator.cluster.nodes.scenario import default_scenario, parse_scenario, scale
from koordinator.cluster.nodes.scenario_checks import FAULT_ANNOTATION
from koordinator.kube.errors import ApiStatusError, TransportError
from koordinator.kube.interface import PatchType
from tests.cluster.nodes.bound_pods import pod_document
from tests.cluster.nodes.fleets import nothing, play
from tests.in_memory_api import NO_FAULT, ApiRequest, Document, InMemoryApi


def _phase(api: InMemoryApi, name: str) -> str:
    return str(api.document(PODS, name, "default")["status"]["phase"])


def _metric(api: InMemoryApi, name: str) -> NodeMetric:
    return convert(api.document(NODE_METRICS, name), NodeMetric)


def test_nodes_are_registered_ready_with_their_sizes() -> None:
    api = play(nothing)
    node = api.document(NODES, "small-0")
    assert api.names(NODES) == ["large-0", "medium-0", "small-0"]
    assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"
    assert (node["status"]["capacity"]["cpu"], node["status"]["allocatable"]["cpu"]) == ("8", "7800m")


def test_every_node_has_a_lease_that_is_renewed() -> None:
    renewed: list[str] = []

    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        for _ in range(2):
            renewed.append(api.document(LEASES, "small-0", "kube-node-lease")["spec"]["renewTime"])
            await clock.advance(21)

    api = play(script)
    assert api.names(LEASES) == ["large-0", "medium-0", "small-0"]
    assert renewed[0] < renewed[1]


def test_node_status_is_heard_of_every_five_minutes() -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        api.requests.clear()
        await clock.advance(600)

    api = play(script)
    assert api.requests.count(ApiRequest("patch", "nodes", "small-0", "status")) == 2


def test_a_condition_that_somebody_else_wrote_is_put_right_soon() -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
        node = api.document(NODES, "small-0")
        api.put(NODES, {**node, **unknown})
        await clock.advance(2)

    node = play(script).document(NODES, "small-0")
    assert [c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"] == ["True"]


def test_a_bound_pod_becomes_running_and_ready() -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        api.put(PODS, pod_document("web", "small-0"))
        await clock.advance(5)

    status = play(script).document(PODS, "web", "default")["status"]
    assert (status["phase"], status["podIP"]) == ("Running", "10.128.0.1")
    assert {c["type"] for c in status["conditions"] if c["status"] == "True"} >= {
        "PodScheduled",
        "Initialized",
        "Ready",
    }
    assert status["containerStatuses"][0]["state"]["running"]


def test_a_pod_waits_for_its_start_latency() -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        api.put(PODS, pod_document("web", "small-0"))
        await clock.advance(0.9)

    assert _phase(play(script), "web") == "Pending"


def test_pods_of_other_nodes_are_left_alone() -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        api.put(NODES, {"metadata": {"name": "real"}})
        api.put(PODS, pod_document("web", "real"))
        await clock.advance(120)

    assert _phase(play(script), "web") == "Pending"


@pytest.mark.parametrize(("seconds", "phase"), [(55, "Running"), (65, "Succeeded")])
def test_a_pod_succeeds_after_its_annotated_run_time(seconds: float, phase: str) -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        pod = pod_document("job", "small-0", restartPolicy="Never")
        pod["metadata"]["annotations"] = {RUN_TIME_ANNOTATION: "1m"}
        api.put(PODS, pod)
        await clock.advance(seconds)

    assert _phase(play(script), "job") == phase


@pytest.mark.parametrize(("policy", "phase"), [("Never", "Failed"), ("OnFailure", "Running")])
def test_a_command_that_fails(policy: str, phase: str) -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        pod = pod_document("job", "small-0", restartPolicy=policy)
        pod["spec"]["containers"][0]["command"] = ["sh", "-c", "sleep 5; exit 3"]
        api.put(PODS, pod)
        await clock.advance(20)

    assert _phase(play(script), "job") == phase


def test_a_batch_pod_succeeds_after_the_run_time_of_the_model() -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        api.put(PODS, pod_document("job", "small-0", restartPolicy="Never", priority=5500))
        await clock.advance(16 * 60)

    assert _phase(play(script), "job") == "Succeeded"


def test_a_deleted_pod_disappears() -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        api.put(PODS, pod_document("web", "small-0"))
        await clock.advance(5)
        await api.client().delete(PODS, "web", "default")
        await clock.advance(5)

    assert play(script).names(PODS) == []


def test_a_deleted_pod_with_a_finalizer_ends_failed_and_is_confirmed_once() -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        pod = pod_document("web", "small-0")
        pod["metadata"]["finalizers"] = ["example.com/hold"]
        api.put(PODS, pod)
        await clock.advance(5)
        await api.client().delete(PODS, "web", "default")
        await clock.advance(60)

    api = play(script)
    assert _phase(api, "web") == "Failed"
    assert api.requests.count(ApiRequest("delete", "pods", "web")) == 2


def test_a_restart_adopts_nodes_and_running_pods() -> None:
    async def first(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        api.put(PODS, pod_document("web", "small-0", cpu="4"))
        await clock.advance(5)

    running: list[int] = []

    async def second(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        api.requests.clear()
        await clock.advance(5)
        running.append(fleet.running_pods)

    api = play(second, play(first))
    assert running == [1]
    assert ApiRequest("patch", "pods", "web", "status") not in api.requests


def test_nodes_that_the_scenario_no_longer_has_are_removed() -> None:
    bigger = play(nothing, scenario=scale(default_scenario(), 10))
    assert play(nothing, bigger).names(NODES) == ["large-0", "medium-0", "small-0"]


def test_a_node_that_is_not_ours_stops_the_registration() -> None:
    api = InMemoryApi()
    api.put(NODES, {"metadata": {"name": "small-0"}})
    with pytest.raises(ExceptionGroup) as raised:
        play(nothing, api)
    assert raised.group_contains(ForeignNodeError, match="node small-0 exists and is not simulated")


def test_what_others_wrote_on_a_node_survives_adoption() -> None:
    api = play(nothing)
    node = api.document(NODES, "small-0")
    node["metadata"]["labels"]["mine"] = "yes"
    node["status"]["allocatable"]["kubernetes.io/batch-cpu"] = "4000"
    api.put(NODES, node)
    node = play(nothing, api).document(NODES, "small-0")
    assert node["metadata"]["labels"]["mine"] == "yes"
    assert node["status"]["allocatable"]["kubernetes.io/batch-cpu"] == "4k"
    assert node["metadata"]["annotations"][FLEET_ANNOTATION] == "default"


def test_node_metrics_are_written_with_node_system_and_pods() -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        api.put(PODS, pod_document("web", "small-0", cpu="4", priority=9500))
        await clock.advance(300)

    status = _metric(play(script), "small-0").status
    assert status.node_metric is not None
    node, system = status.node_metric.node_usage.resources["cpu"], status.node_metric.system_usage.resources["cpu"]
    [pod] = status.pods_metric
    assert (pod.namespace, pod.name, pod.priority, pod.qos) == ("default", "web", "koord-prod", "LS")
    assert 0 < pod.pod_usage.resources["cpu"].milli < 4000
    assert system.milli < node.milli


def test_a_node_metric_without_a_manager_gets_the_default_policy() -> None:
    api = play(nothing)
    metric = _metric(api, "small-0")
    policy = metric.spec.metric_collect_policy
    assert policy is not None
    assert (policy.aggregate_duration_seconds, policy.report_interval_seconds) == (300, 60)
    assert metric.metadata.owner_references[0].uid == api.document(NODES, "small-0")["metadata"]["uid"]


def _managed(spec: Document) -> InMemoryApi:
    api = InMemoryApi()
    api.put(NODE_METRICS, {"metadata": {"name": "small-0"}, "spec": {"metricCollectPolicy": spec}})
    return api


def test_the_policy_of_a_manager_is_kept_and_followed() -> None:
    spec = {"nodeAggregatePolicy": {"durations": ["2m0s"]}, "aggregateDurationSeconds": 120}

    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        await clock.advance(200)

    api = play(script, _managed(spec))
    metric = _metric(api, "small-0")
    assert metric.status.node_metric is not None
    assert [usage.duration.total_seconds() for usage in metric.status.node_metric.aggregated_node_usages] == [120]
    assert api.document(NODE_METRICS, "small-0")["spec"] == {"metricCollectPolicy": spec}


def test_reports_are_as_rare_as_the_manager_wants() -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        await clock.advance(601)

    api = play(script, _managed({"reportIntervalSeconds": 180}))
    # At once, by the default policy, then after 180, 360 and 540 seconds.
    assert api.requests.count(ApiRequest("patch", "nodemetrics", "small-0", "status")) == 4


def test_node_metrics_begin_when_their_kind_is_served() -> None:
    api = InMemoryApi()
    not_found = ApiStatusError(404, "NotFound", "the server could not find the requested resource")
    api.fault = lambda request, done: not_found if request.plural == "nodemetrics" else None

    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        await clock.advance(60)
        api.fault = NO_FAULT
        await clock.advance(60)

    assert play(script, api).names(NODE_METRICS) == ["large-0", "medium-0", "small-0"]


@pytest.mark.parametrize(
    "error", [TransportError("connection refused"), ApiStatusError(503, "ServiceUnavailable", "starting")]
)
def test_an_outage_only_delays(error: Exception) -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        api.put(PODS, pod_document("web", "small-0"))
        await clock.advance(0.5)
        api.fault = lambda request, done: error
        await clock.advance(120)
        api.fault = NO_FAULT
        api.requests.clear()
        await clock.advance(60)

    api = play(script)
    assert _phase(api, "web") == "Running"
    assert {request.name for request in api.requests if request.plural == "leases"} == {
        "large-0",
        "medium-0",
        "small-0",
    }


def test_registration_waits_for_a_server_that_is_not_well() -> None:
    api = InMemoryApi()
    left = [5]

    def refuse(request: ApiRequest, done: bool) -> Exception | None:
        if (request.verb, request.plural) != ("create", "nodes") or not left[0]:
            return None
        left[0] -= 1
        return ApiStatusError(500, "InternalError", "not yet")

    api.fault = refuse
    assert play(nothing, api).names(NODES) == ["large-0", "medium-0", "small-0"]


def test_usage_of_a_node_is_that_of_its_parts() -> None:
    usages: list[Any] = []

    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        api.put(PODS, pod_document("web", "small-0", cpu="4", priority=9500))
        api.put(PODS, pod_document("crunch", "small-0", cpu="2", priority=5500))
        await clock.advance(120)
        usages.append(fleet.usage_of("small-0"))

    play(script)
    usage = usages[0]
    assert usage.cpu == usage.system_cpu + usage.latency_sensitive_cpu + usage.batch_cpu
    assert 0 < usage.latency_sensitive_cpu < usage.batch_cpu
    assert usage.cpu_capacity == 8.0


def test_a_fast_simulation_passes_a_day_in_a_minute() -> None:
    scenario = parse_scenario(
        "{nodeGroups: [{name: a}], timing: {speed: 1440, startHour: 0, sampleInterval: 2m}}", "test"
    )
    loads: list[float] = []

    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        api.put(PODS, pod_document("web", "a-0", cpu="8"))
        for _ in range(12):
            await clock.advance(5)
            loads.append(fleet.usage_of("a-0").latency_sensitive_cpu)

    api = play(script, scenario=scenario)
    assert max(loads) > 1.5 * min(loads)
    assert _phase(api, "web") == "Running"
    assert api.document(NODE_METRICS, "a-0")["status"]["updateTime"] < "2026-01-01T00:02:00Z"


def test_nothing_is_heard_of_a_stopped_node_until_it_is_back() -> None:
    heard: list[tuple[str, str]] = []

    def now(api: InMemoryApi) -> tuple[str, str]:
        return api.document(LEASES, "small-0", "kube-node-lease")["spec"]["renewTime"], _phase(api, "web")

    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        await annotate(api, {FAULT_ANNOTATION: "nodeStopped"})
        api.put(PODS, pod_document("web", "small-0"))
        heard.append(now(api))
        await clock.advance(60)
        heard.append(now(api))
        await annotate(api, {FAULT_ANNOTATION: None})
        await clock.advance(15)
        heard.append(now(api))

    async def annotate(api: InMemoryApi, annotations: dict[str, str | None]) -> None:
        await api.client().patch(NODES, "small-0", {"metadata": {"annotations": annotations}}, PatchType.MERGE)

    play(script)
    before, meanwhile, after = heard
    assert before == meanwhile
    assert after[0] > before[0]
    assert (before[1], after[1]) == ("Pending", "Running")


def test_a_pod_of_which_others_say_that_it_is_not_ready_is_reported_ready() -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        api.put(PODS, pod_document("web", "small-0"))
        await clock.advance(5)
        unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        await api.client().patch(PODS, "web", unready, PatchType.STRATEGIC, "default", subresource="status")
        await clock.advance(1)

    status = play(script).document(PODS, "web", "default")["status"]
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"
