"""The whole agent: what it reports, and how it bears what goes wrong around it."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.kinds import EVENTS, NAMESPACES, NODE_METRICS, NODES
from koordinator.koordlet.options import CollectorOptions, EnforcementOptions
from koordinator.koordlet.report.audit.log import AuditEvent
from koordinator.kube.errors import ApiStatusError
from koordinator.node.errors import MissingFileError
from tests.in_memory_api import ApiRequest, Hang
from tests.koordlet.node_under_test import (
    GIB,
    MEMORY_STAT,
    NODE,
    POD_FOLDER,
    UID,
    NodeUnderTest,
    Story,
    cpu_of,
    play,
    pod,
    usage,
)
from tests.node.core_scheduling_kernel import CoreSchedulingKernel
from tests.node.nvml_library import FakeCard


@pytest.fixture
def node(tmp_path: Path) -> NodeUnderTest:
    return NodeUnderTest(tmp_path)


async def two_minutes(node: NodeUnderTest) -> None:
    await node.pass_seconds(125)


def test_the_report_of_a_node_that_runs_as_it_should(node: NodeUnderTest) -> None:
    status = play(node, two_minutes)
    figures = ("avg", "p50", "p90", "p95", "p99")
    assert status == {
        "updateTime": "2026-01-01T00:02:01Z",
        "nodeMetric": {
            "nodeUsage": usage("2", "8Gi"),
            "systemUsage": usage("1500m", "7Gi"),
            "aggregatedNodeUsages": [{"usage": dict.fromkeys(figures, usage("2", "8Gi")), "duration": "1m0s"}],
            "aggregatedSystemUsages": [{"usage": dict.fromkeys(figures, usage("1500m", "7Gi")), "duration": "1m0s"}],
        },
        "podsMetric": [
            {
                "name": "web",
                "namespace": "shop",
                "podUsage": usage("500m", "1Gi"),
                "priority": "koord-prod",
                "qos": "LS",
            }
        ],
        "hostApplicationMetric": [],
        # Of a pod and a system that have used the same all along: each the end of its bucket, and 10 % on top.
        "prodPeakMetric": {"resource": {"resources": {"cpu": "2334m", "memory": "9543765746"}}},
        "prodReclaimableMetric": {"resource": {"resources": {"cpu": "666m", "memory": "0"}}},
    }


def test_no_report_before_the_interval_has_passed(node: NodeUnderTest) -> None:
    async def fifty_seconds(node: NodeUnderTest) -> None:
        await node.pass_seconds(50)

    assert play(node, fifty_seconds) == {}


def test_kubelet_away_leaves_the_pods_and_is_said_once(node: NodeUnderTest, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(30)
        node.kubelet_is_up = False
        await node.pass_seconds(90)
        node.kubelet_is_up = True
        await node.pass_seconds(15)
        assert "the kubelet responds again" in caplog.text
        node.kubelet_is_up = False

    status = play(node, story)
    assert [item["name"] for item in status["podsMetric"]] == ["web"]
    assert caplog.text.count("the pods stay as the kubelet last listed them") == 1


def test_a_response_without_any_pod_is_not_believed(node: NodeUnderTest) -> None:
    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(20)
        node.pods = []
        await node.pass_seconds(105)

    assert len(play(node, story)["podsMetric"]) == 1


def test_a_pod_that_ends_leaves_the_report_when_its_samples_have_left_the_window(node: NodeUnderTest) -> None:
    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(30)
        shutil.rmtree(node.machine.root / "sys/fs/cgroup" / POD_FOLDER)
        node.pod_is_there = False
        node.pods = [pod("other", "0000-other")]
        await node.pass_seconds(160)

    status = play(node, story)
    assert status["podsMetric"] == []
    assert cpu_of(status, "systemUsage") == "2"


def test_a_report_that_the_api_server_does_not_take_is_tried_again_soon(node: NodeUnderTest) -> None:
    refused: list[str] = []

    def refuse(request: ApiRequest, done: bool) -> Exception | None:
        if request.verb != "patch" or refused:
            return None
        refused.append(request.name)
        return ApiStatusError(503, "ServiceUnavailable", "etcd is away")

    async def seventy_seconds(node: NodeUnderTest) -> None:
        await node.pass_seconds(70)

    node.api.fault = refuse
    status = play(node, seventy_seconds)
    assert refused
    assert "2026-01-01T00:01:01Z" <= status["updateTime"] <= "2026-01-01T00:01:05Z"


def play_to_no_report(node: NodeUnderTest, story: Story) -> None:
    async def run() -> None:
        async with node.running():
            await story(node)

    asyncio.run(run())
    assert node.api.all(NODE_METRICS) == []


def test_a_node_without_a_node_metric_reports_nothing_and_says_so_once(
    node: NodeUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    node.api.remove(NODE_METRICS, NODE)
    play_to_no_report(node, two_minutes)
    assert caplog.text.count("this node has no NodeMetric") == 1


def test_a_node_metric_that_is_deleted_between_watch_and_report(node: NodeUnderTest) -> None:
    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(50)
        node.api.remove(NODE_METRICS, NODE)
        await node.pass_seconds(20)

    play_to_no_report(node, story)


@pytest.mark.parametrize("step", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_wall_clock_that_is_set_costs_no_usage(node: NodeUnderTest, step: timedelta) -> None:
    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(30)
        node.clock.set_wall(node.clock.now() + step)
        await node.pass_seconds(95)

    status = play(node, story)
    assert cpu_of(status, "nodeUsage") == "2"
    assert status["podsMetric"][0]["podUsage"] == usage("500m", "1Gi")


def test_a_thousand_pods_at_once_are_all_reported_and_stay_within_the_budget(node: NodeUnderTest) -> None:
    """Kubelet tells them before their cgroups are made, all at the same moment; each uses a tenth of a CPU."""
    node.collect_interval = 5.0
    node.enforcement = EnforcementOptions(30, 30, 30, 30)
    node.cache_bytes = budget = 2 << 20
    cgroups = [f"{POD_FOLDER.rpartition('/')[0]}/poduid-{number}" for number in range(1000)]

    async def run() -> list[float]:
        sizes = []
        async with node.running() as agent:
            await node.pass_seconds(98)
            node.pods += [_small(number) for number in range(1000)]
            await node.pass_seconds(10)
            for step in range(3):
                for number, folder in enumerate(cgroups):
                    for each in (folder, f"{folder}/c{number}"):
                        stat = f"usage_usec {step * 500_000}\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"
                        node.machine.write(f"/sys/fs/cgroup/{each}/cpu.stat", stat)
                        if not step:
                            memory = MEMORY_STAT.format(1 << 20, 4096)
                            node.machine.write(f"/sys/fs/cgroup/{each}/memory.stat", memory)
                await node.pass_seconds(5)
                text = agent.metrics.both.exposition()[0].decode()
                sizes.append(float(text.partition('koordlet_metric_cache_bytes{node="node-1"} ')[2].partition("\n")[0]))
        return sizes

    assert max(asyncio.run(run())) <= budget
    used = {item["name"]: item["podUsage"]["resources"]["cpu"] for item in node.status["podsMetric"]}
    assert used == {"web": "500m"} | {f"p{number}": "100m" for number in range(1000)}


def _small(number: int) -> dict[str, Any]:
    document = pod(f"p{number}", f"uid-{number}")
    document["status"]["containerStatuses"][0]["containerID"] = f"containerd://c{number}"
    return document


def test_without_any_cgroups_the_agent_ends_with_a_reason(tmp_path: Path) -> None:
    node = NodeUnderTest(tmp_path)
    shutil.rmtree(tmp_path / "sys/fs")
    with pytest.raises(ExceptionGroup) as raised:
        play(node, two_minutes)
    assert raised.group_contains(MissingFileError, match="no cgroup hierarchy is mounted there")


def test_it_stops_while_it_waits_for_its_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    node = NodeUnderTest(tmp_path)
    node.api.remove(NODES, NODE)
    node.api.remove(NODE_METRICS, NODE)

    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(20)
        assert "waiting for node" not in caplog.text
        await node.pass_seconds(15)

    play_to_no_report(node, story)
    assert caplog.text.count("waiting for node node-1: not found") == 1


def test_a_node_that_does_not_say_where_its_kubelet_is_is_waited_for(
    node: NodeUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    node.has_address = False

    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(65)
        node.has_address = True
        await node.pass_seconds(125)

    assert [item["name"] for item in play(node, story)["podsMetric"]] == ["web"]
    assert caplog.text.count("status.addresses has none of the type InternalIP") == 3


def test_it_stops_while_it_waits_for_the_address_of_kubelet(node: NodeUnderTest) -> None:
    node.has_address = False
    assert play(node, two_minutes) == {}


def test_a_pod_that_has_finished_is_not_looked_for(node: NodeUnderTest) -> None:
    finished = pod("done", "0000-done")
    finished["status"]["phase"] = "Succeeded"
    node.pods = [finished]
    assert play(node, two_minutes)["podsMetric"] == []


def test_usage_of_a_pod_whose_memory_grows(node: NodeUnderTest) -> None:
    async def story(node: NodeUnderTest) -> None:
        for _ in range(125):
            node.pod_memory += GIB // 64
            await node.pass_seconds(1)

    memory = play(node, story)["podsMetric"][0]["podUsage"]["resources"]["memory"]
    assert memory != "1Gi"


def test_sigterm_in_the_middle_of_a_report(node: NodeUnderTest) -> None:
    reporting = asyncio.Event()

    def hang(request: ApiRequest, done: bool) -> Exception | None:
        if request.verb != "patch":
            return None
        reporting.set()
        return Hang()

    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(61)
        assert reporting.is_set()

    node.api.fault = hang
    assert play(node, story) == {}


def test_what_is_recorded_is_on_the_disk_when_the_agent_has_stopped(node: NodeUnderTest) -> None:
    node.gates = ("AuditEvents",)

    async def run() -> None:
        async with node.running() as agent:
            await node.pass_seconds(2)
            assert agent.audit is not None
            for reason in ("first", "second"):
                agent.audit.record(AuditEvent(type="node", reason=reason), level=1)

    asyncio.run(run())
    lines = (node.machine.root / "audit/audit.log").read_text().splitlines()
    assert [json.loads(line)["reason"] for line in lines] == ["first", "second"]


def write_pressure(node: NodeUnderTest, folder: str) -> None:
    for resource in ("cpu", "memory", "io"):
        content = "some avg10=2.50 avg60=1.00 avg300=0.50 total=9\n"
        node.machine.write(f"/sys/fs/cgroup/{folder}/{resource}.pressure", content)


async def exported(node: NodeUnderTest, seconds: int) -> str:
    async with node.running() as agent:
        await node.pass_seconds(seconds)
        body, _ = agent.metrics.both.exposition()
        return body.decode()


def test_pressure_with_its_gate_on(node: NodeUnderTest) -> None:
    node.gates = ("PSICollector",)
    for folder in ("kubepods", POD_FOLDER, f"{POD_FOLDER}/c0"):
        write_pressure(node, folder)
    text = asyncio.run(exported(node, 3))
    assert text.count("koordlet_pod_psi{") == 9
    assert text.count("koordlet_container_psi{") == 9


def test_a_pod_that_suffers_is_reported_in_the_node_metric(node: NodeUnderTest) -> None:
    node.gates = ("PSICollector", "InterferenceDetection")

    def show(avg10: float) -> None:
        for folder, resource in itertools.product(
            ("kubepods", POD_FOLDER, f"{POD_FOLDER}/c0"), ("cpu", "memory", "io")
        ):
            stall = f"some avg10={avg10 if resource == 'cpu' else 0.0:.2f} avg60=0.00 avg300=0.00 total=0\n"
            node.machine.write(f"/sys/fs/cgroup/{folder}/{resource}.pressure", stall)

    async def suffer(node: NodeUnderTest) -> None:
        show(1.0)
        await node.pass_seconds(400)
        show(40.0)
        await node.pass_seconds(120)

    (report,) = play(node, suffer)["podsMetric"]
    (finding,) = report["extensions"]["Object"]["interference"]
    assert (finding["indicator"], finding["value"], finding["suspects"]) == ("cpu-pressure", 40.0, [])


def test_caches_and_bandwidth_until_resctrl_is_unmounted(node: NodeUnderTest) -> None:
    node.gates = ("ResctrlCollector",)
    node.collectors = CollectorOptions(with_resctrl=True, resctrl_interval=1.0)
    node.machine.write("/proc/cpuinfo", "flags : cat_l3 mba cqm_mbm_total cqm_mbm_local cqm_llc cqm_occup_llc\n")
    node.machine.write("/sys/fs/resctrl/schemata", "L3:0=fff\nMB:0=100\n")
    node.machine.write("/sys/fs/resctrl/BE/mon_data/mon_L3_00/llc_occupancy", "4096\n")

    async def run() -> list[bool]:
        series = 'koordlet_resctrl_llc_occupancy{cache_id="0",node="node-1",qos="BE"} 4096.0'
        seen = []
        async with node.running() as agent:
            for _ in range(2):
                await node.pass_seconds(3)
                seen.append(series in agent.metrics.external.exposition()[0].decode())
                shutil.rmtree(node.machine.root / "sys/fs/resctrl", ignore_errors=True)
        return seen

    assert asyncio.run(run()) == [True, False]


def test_cycles_of_what_is_no_cgroup_cost_nothing_else(node: NodeUnderTest) -> None:
    node.gates = ("CPICollector",)
    text = asyncio.run(exported(node, 75))
    assert "koordlet_container_cpi{" not in text
    assert 'loop_errors_total{loop="cycles"} 0.0' in text


def test_each_loop_has_a_heartbeat(node: NodeUnderTest) -> None:
    text = asyncio.run(exported(node, 75))
    shown = set(re.findall(r'loop_last_success_timestamp_seconds{loop="([^"]*)"}', text))
    waiting = {"folders of pods", "new pods", "new containers", "hook server", "resized pods"}
    assert shown >= {*waiting, "measure", "node info", "node metric", "node topology", "pods", "runtime hooks"}


def test_a_gate_whose_feature_is_missing_says_so_once(node: NodeUnderTest, caplog: pytest.LogCaptureFixture) -> None:
    node.gates = ("PSICollector", "ColdPageCollector")
    text = asyncio.run(exported(node, 40))
    assert "koordlet_pod_psi{" not in text
    for what in ("pressure", "cold pages"):
        assert caplog.text.count(f"{what}: not measured") == 1


def test_a_host_application_is_reported_and_is_no_part_of_the_system(node: NodeUnderTest) -> None:
    node.show_slo({"hostApplications": [{"name": "nginx", "qos": "LS", "priority": "koord-prod"}]})
    folder = "/sys/fs/cgroup/host-latency-sensitive/nginx"
    node.machine.write(f"{folder}/memory.stat", MEMORY_STAT.format(GIB, 4096))
    node.machine.write(f"{folder}/memory.current", str(2 * GIB))

    async def story(node: NodeUnderTest) -> None:
        for second in range(125):
            used = f"usage_usec {second * 250_000}\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"
            node.machine.write(f"{folder}/cpu.stat", used)
            await node.pass_seconds(1)

    status = play(node, story)
    assert status["hostApplicationMetric"] == [
        {"name": "nginx", "usage": usage("250m", "1Gi"), "priority": "koord-prod", "qos": "LS"}
    ]
    assert status["nodeMetric"]["systemUsage"] == usage("1250m", "6Gi")


def test_a_new_pod_is_measured_without_waiting_for_kubelets_turn(node: NodeUnderTest) -> None:
    async def run() -> list[str]:
        async with node.running() as agent:
            await node.pass_seconds(12)
            node.pods.append(pod("late", "0000-late"))
            (node.machine.root / "sys/fs/cgroup/kubepods/burstable/pod0000-late").mkdir()
            for _ in range(5):
                await asyncio.to_thread(os.sched_yield)
                await node.clock.advance(0.2)
            return [one.pod.metadata.name for one in agent.states.pods]

    assert asyncio.run(run()) == ["web", "late"]


def test_shared_cpus_are_known_a_moment_after_the_pods(node: NodeUnderTest) -> None:
    node.machine.write_numa_memory(0, 16 << 20)
    node.kubelet_takes = 0.1

    async def run() -> bool:
        async with node.running() as agent:
            for _ in range(10):
                await node.clock.advance(0.1)
            return agent.states.topology is not None

    assert asyncio.run(run())


def test_gpus_with_their_gate_on(node: NodeUnderTest) -> None:
    node.gates = ("Accelerators",)
    node.cards = (FakeCard({7: 250}, [(7, 1 << 50, 40)]),)
    node.machine.write(f"/sys/fs/cgroup/{POD_FOLDER}/c0/cgroup.procs", "7\n")
    status = play(node, two_minutes)
    (card,) = status["podsMetric"][0]["podUsage"]["devices"]
    assert (card["id"], card["resources"]["koordinator.sh/gpu-core"]) == ("GPU-0", "40")
    assert status["nodeMetric"]["aggregatedNodeUsages"][0]["usage"]["p99"]["devices"] == [card]


def test_gpus_without_a_driver_are_said_and_cost_nothing_else(
    node: NodeUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    node.gates = ("Accelerators",)
    assert cpu_of(play(node, two_minutes), "nodeUsage") == "2"
    assert caplog.text.count("GPUs are not measured: NVML: Driver Not Loaded") == 1


def test_by_whom_runtime_hooks_are_called(node: NodeUnderTest) -> None:
    text = asyncio.run(exported(node, 1))
    shown = re.findall(r'^koordlet_runtime_hooks_mode\{.*?mode="(\w+)".*?\} (\S+)$', text, re.MULTILINE)
    assert shown == [("proxy", "0.0"), ("nri", "0.0"), ("reconciler", "1.0")]


def test_kernel_features_as_metrics(node: NodeUnderTest) -> None:
    text = asyncio.run(exported(node, 1))
    assert 'koordlet_kernel_feature_works{feature="resctrl monitoring",node="node-1"} 0.0' in text
    assert 'koordlet_kernel_feature_works{feature="CPU topology",node="node-1"} 1.0' in text


def test_with_a_copy_on_disk_windows_are_warm_at_once_after_a_restart(node: NodeUnderTest, tmp_path: Path) -> None:
    node.samples = tmp_path / "metric-data"
    (metric,) = node.api.all(NODE_METRICS)
    metric["spec"]["metricCollectPolicy"]["nodeAggregatePolicy"]["durations"] = ["10m0s"]
    node.api.put(NODE_METRICS, metric)

    async def four_minutes(node: NodeUnderTest) -> None:
        await node.pass_seconds(250)

    def ten_minutes(status: dict[str, Any]) -> Any:
        return status["nodeMetric"]["aggregatedNodeUsages"][0]["usage"]["avg"]

    assert ten_minutes(play(node, four_minutes)) == {}
    node.kubelet_is_up = True
    assert ten_minutes(play(node, two_minutes)) == usage("2", "8Gi")


def test_kubelet_is_queried_for_its_configuration_by_one_loop(node: NodeUnderTest) -> None:
    node.machine.write_numa_memory(0, 16 << 20)

    async def story(node: NodeUnderTest) -> None:
        await node.pass_seconds(55)

    play(node, story)
    # Every thirty seconds, from the round on in which the first pods are known.
    assert node.requests.count("/configz") == 2


def test_what_cpu_burst_has_made_of_containers_and_what_online_pods_use(node: NodeUnderTest) -> None:
    node.pods[0]["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "1"}
    for folder in (POD_FOLDER, f"{POD_FOLDER}/c0"):
        node.machine.write(f"/sys/fs/cgroup/{folder}/cpu.max", "100000 100000\n")
        node.machine.write(f"/sys/fs/cgroup/{folder}/cpu.max.burst", "0\n")
    node.machine.write("/sys/fs/cgroup/kubepods/besteffort/cpu.max", "max 100000\n")
    node.add_capacity()
    suppress = {"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 65}
    node.show_slo({"cpuBurstStrategy": {"policy": "auto"}, "resourceUsedThresholdWithBE": suppress})
    text = asyncio.run(exported(node, 5))
    labels = 'container_id="containerd://c0",container_name="c",node="node-1",pod_name="web",pod_namespace="shop"'
    for name in ("cfs_burst_us", "cfs_quota_us"):
        assert f"koordlet_container_scaled_{name}{{{labels}}} 100000.0\n" in sorted_labels(text)
    online = text.partition('koordlet_be_suppress_ls_used_cpu_cores{node="node-1"} ')[2].partition("\n")[0]
    assert float(online) == pytest.approx(0.5)


def sorted_labels(text: str) -> str:
    """Each line with its labels in the order of their names."""
    pattern = re.compile(r"\{(.*)\}")
    return pattern.sub(lambda found: "{" + ",".join(sorted(found[1].split(","))) + "}", text)


def test_pods_are_isolated_by_core_scheduling(node: NodeUnderTest) -> None:
    """On a simulated kernel: the cookies, the metrics and the audit log of an agent with the gate on."""
    kernel = CoreSchedulingKernel(31, 32)
    node.prctl, node.gates = kernel, ("CoreSched", "AuditEvents")
    classes = {"lsClass": {"cpuQOS": {"enable": True, "coreExpeller": False}}}
    node.show_slo({"resourceQOSStrategy": {"policies": {"cpuPolicy": "coreSched"}, **classes}})
    node.machine.write(f"/sys/fs/cgroup/{POD_FOLDER}/c0/cgroup.procs", "31\n32\n")
    text = asyncio.run(exported(node, 12))
    cookie = kernel.cookies[31]
    assert cookie == kernel.cookies[32] != 0
    labels = f'container_id="containerd://c0",container_name="c",core_sched_cookie="{cookie}",core_sched_group=""'
    assert f"koordlet_container_core_sched_cookie{{{labels}" in text
    assert 'koordlet_core_sched_cookie_manage_status{core_sched_group="",node="node-1",status="succeeded"} 1.0' in text
    assert "get a new cookie" in (node.machine.root / "audit/audit.log").read_text()


def test_the_tasks_of_a_pod_with_a_part_of_the_cache_are_in_its_group(node: NodeUnderTest) -> None:
    node.gates = ("Resctrl",)
    node.pods[0]["metadata"]["annotations"] = {"node.koordinator.sh/resctrl": '{"mb":{"schemata":{"percent":10}}}'}
    node.machine.write("/proc/cpuinfo", "vendor_id : GenuineIntel\nflags : cat_l3 mba\n")
    node.machine.write("/sys/fs/resctrl/info/L3/cbm_mask", "7ff\n")
    node.machine.write("/sys/fs/resctrl/schemata", "L3:0=7ff\nMB:0=100\n")
    node.machine.write(f"/sys/fs/cgroup/{POD_FOLDER}/c0/cgroup.threads", "31\n")
    play(node, two_minutes)
    made = node.machine.root / f"sys/fs/resctrl/koordlet-{UID}"
    assert [(made / name).read_text() for name in ("schemata", "tasks")] == ["L3:0=7ff\nMB:0=10\n", "31"]


def test_a_pod_without_capacity_for_its_part_of_the_cache_is_reported(node: NodeUnderTest) -> None:
    """No folder can have so long a name, which stands for CPUs that know no more groups."""
    node.gates = ("Resctrl",)
    node.pods[0]["metadata"] |= {
        "uid": "u" * 260,
        "annotations": {"node.koordinator.sh/resctrl": '{"mb":{"schemata":{"percent":10}}}'},
    }
    node.machine.write("/proc/cpuinfo", "vendor_id : GenuineIntel\nflags : cat_l3 mba\n")
    node.machine.write("/sys/fs/resctrl/info/L3/cbm_mask", "7ff\n")
    node.machine.write("/sys/fs/resctrl/schemata", "L3:0=7ff\nMB:0=100\n")
    node.api.put(NAMESPACES, {"metadata": {"name": "shop"}})
    play(node, two_minutes)
    events = [event for event in node.api.all(EVENTS) if event["reason"] == "ResctrlGroupRefused"]
    assert len(events) == 1
    assert "File name too long" in str(events[0])


def test_a_simulated_kernel_has_no_core_scheduling(node: NodeUnderTest, caplog: pytest.LogCaptureFixture) -> None:
    node.gates = ("CoreSched",)
    play(node, two_minutes)
    assert caplog.text.count("no core scheduling: the kernel of this node is simulated") == 1
