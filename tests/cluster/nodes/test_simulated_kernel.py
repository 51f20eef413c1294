"""koordlet itself on simulated nodes: what it measures there, and what comes of what it writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.kinds import CONFIG_MAPS, NODE_METRICS, NODE_RESOURCE_TOPOLOGIES, NODE_SLOS, NODES, PODS
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.base.clock import ManualClock
from koordinator.cluster.nodes.fleet import Fleet
from koordinator.cluster.nodes.scenario import default_scenario, scale
from koordinator.cluster.nodes.scenario_checks import FAULT_ANNOTATION
from koordinator.cluster.nodes.simulated_files import SimulatedFiles
from koordinator.cluster.nodes.simulated_kernel import PodDemand, SimulatedKernel
from koordinator.koordlet.pods.node_pod import NodePod, node_pods
from koordinator.node.cgroup_layout import CgroupVersion, detect_version, find_kubepods
from koordinator.node.cgroup_meter import CgroupMeter
from koordinator.node.cpu_time import read_cpu_times
from koordinator.node.cpu_topology import read_cpu_topology
from koordinator.node.features import probe_machine
from koordinator.node.memory import read_machine_memory, read_numa_memory
from koordinator.node.resctrl import probe_allocation, probe_monitoring, read_monitors, read_schemata
from tests.cluster.nodes.bound_pods import pod_document
from tests.in_memory_api import Document, InMemoryApi
from tests.node.machine import none_odd

GIB = 1 << 30
Script = Callable[[InMemoryApi, Fleet, ManualClock], Awaitable[None]]


def _pod(name: str, *, qos: str = "Burstable", label: str = "LS", limit: str | None = None) -> Pod:
    resources: Document = {"requests": {"cpu": "1"}, **({"limits": {"cpu": limit}} if limit else {})}
    return convert(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"koordinator.sh/qosClass": label}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
            "status": {
                "phase": "Running",
                "qosClass": qos,
                "containerStatuses": [{"name": "c", "containerID": f"containerd://{name}0"}],
            },
        },
        Pod,
    )


class _Node:
    """A kernel of 4 CPUs and 16 GiB, and what is read of it."""

    def __init__(self, root: Path) -> None:
        self.kernel = SimulatedKernel(root, 4, 16 * GIB, 1000.0)
        self.meter = CgroupMeter(self.kernel.layout, 4096, 100)
        self.now = 1000.0

    def pods(self, *pods: Pod) -> list[NodePod]:
        return list(node_pods(pods, self.kernel.layout))

    def run(self, seconds: float, demands: list[PodDemand], system: float = 0.0) -> None:
        self.now += seconds
        self.kernel.advance(self.now, system, GIB, demands)

    def cpu_seconds(self, relative: str) -> float:
        return self.meter.cpu(relative).nanoseconds / 1e9

    def write(self, relative: str, name: str, content: str) -> None:
        """As koordlet does."""
        Path(self.kernel.layout.folder("", relative), name).write_text(content)


@contextmanager
def _node(root: Path) -> Iterator[_Node]:
    node = _Node(root)
    try:
        yield node
    finally:
        node.meter.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[_Node]:
    with _node(tmp_path) as made:
        yield made


def test_the_machine_is_found_as_a_real_one_is(node: _Node) -> None:
    host = node.kernel.host
    assert detect_version(host) is CgroupVersion.V2
    assert find_kubepods(host, CgroupVersion.V2) == ("systemd", "kubepods.slice")
    topology = read_cpu_topology(host, none_odd)
    assert (list(topology.by_core.values()), list(topology.by_l3)) == ([[0, 1], [2, 3]], [0])
    assert read_machine_memory(host).total == 16 * GIB
    assert [memory.total for memory in read_numa_memory(host, none_odd)] == [16 * GIB]


def test_what_pods_use_is_counted_in_their_cgroups_and_above(node: _Node) -> None:
    (web,) = node.pods(_pod("web"))
    node.run(10, [PodDemand(web, 1.5, GIB)], system=0.5)
    assert (node.meter.cpu(web.cgroup).nanoseconds, node.meter.memory(web.cgroup).usage) == (15 * 10**9, GIB)
    for above in (web.containers[0].cgroup, "kubepods.slice/kubepods-burstable.slice", "kubepods.slice"):
        assert node.cpu_seconds(above) == 15
    assert read_cpu_times(node.kernel.host, none_odd).total == 2000
    assert read_machine_memory(node.kernel.host).usage == 2 * GIB


def test_a_pod_that_has_ended_leaves_no_cgroup_and_its_class_keeps_the_count(node: _Node) -> None:
    (web,) = node.pods(_pod("web"))
    node.run(10, [PodDemand(web, 1.0, GIB)])
    node.run(10, [])
    assert not Path(node.kernel.layout.folder("", web.cgroup)).exists()
    assert node.cpu_seconds("kubepods.slice") == 10


def test_a_quota_of_best_effort_pods_holds_them_down_and_shows(node: _Node) -> None:
    web, job = node.pods(_pod("web"), _pod("job", qos="BestEffort", label="BE"))
    demands = [PodDemand(web, 1.0, GIB), PodDemand(job, 2.0, GIB)]
    node.run(10, demands)
    best_effort = "kubepods.slice/kubepods-besteffort.slice"
    node.write(best_effort, "cpu.max", "50000 100000")
    node.run(10, demands)
    assert (node.cpu_seconds(web.cgroup), node.cpu_seconds(job.cgroup)) == (20, 25)
    throttling = node.meter.cpu(best_effort)
    assert (throttling.periods, throttling.throttled_periods) == (100, 100)
    stalled = Path(node.kernel.layout.folder("", job.cgroup), "cpu.pressure").read_text()
    assert stalled.startswith("some avg10=75.00 ")


def test_cpus_of_best_effort_pods_hold_them_down_and_are_in_force(node: _Node) -> None:
    (job,) = node.pods(_pod("job", qos="BestEffort", label="BE"))
    best_effort = "kubepods.slice/kubepods-besteffort.slice"
    node.write(best_effort, "cpuset.cpus", "3\n")
    node.run(10, [PodDemand(job, 4.0, GIB)])
    assert (node.cpu_seconds(job.cgroup), node.meter.cpu_count(best_effort)) == (10, 1)


def _pressure(node: _Node, pod: NodePod) -> float:
    """The percentage of the time in which it waits for CPUs."""
    some = Path(node.kernel.layout.folder("", pod.cgroup), "cpu.pressure").read_text()
    return float(some.removeprefix("some avg10=").split()[0])


@pytest.mark.parametrize(("cores_of_job", "waits"), [(2.0, 0.0), (3.5, 100.0), (2.4, 20.0)])
def test_a_pod_waits_for_cpus_that_others_keep_busy(node: _Node, cores_of_job: float, waits: float) -> None:
    """A core that the pod itself uses aside, others begin to be in the way at three quarters of the CPUs."""
    web, job = node.pods(_pod("web"), _pod("job", qos="BestEffort", label="BE"))
    node.run(10, [PodDemand(web, 1.0, GIB), PodDemand(job, cores_of_job, GIB)])
    assert _pressure(node, web) == pytest.approx(waits)


def test_what_a_pod_itself_keeps_busy_is_in_nobodys_way(node: _Node) -> None:
    (web,) = node.pods(_pod("web"))
    node.run(10, [PodDemand(web, 4.0, GIB)])
    assert _pressure(node, web) == 0.0


def test_kubelets_limit_is_the_quota_of_a_new_pod(node: _Node) -> None:
    (web,) = node.pods(_pod("web", limit="2"))
    node.run(1, [PodDemand(web, 1.0, GIB)])
    assert node.meter.cpu_bandwidth(web.cgroup) == (200_000, 100_000)


def test_resctrl_shows_a_class_and_keeps_the_line_that_was_not_written(node: _Node) -> None:
    host = node.kernel.host
    assert (probe_allocation(host), probe_monitoring(host)) == (None, None)
    SimulatedFiles().write(f"{host.sys_fs}/resctrl/BE/schemata", "L3:0=f\n")
    (job,) = node.pods(_pod("job", qos="BestEffort", label="BE"))
    node.run(10, [PodDemand(job, 2.0, GIB)])
    assert read_schemata(host, "BE").l3_masks == {0: 0xF}
    assert read_schemata(host, "BE").bandwidth_percents == {0: 100}
    (monitor,) = read_monitors(host, "BE")
    assert monitor.total_bandwidth == 20 * GIB


def test_the_features_that_it_has_are_those_that_doctor_finds(node: _Node) -> None:
    works = {f.name for f in probe_machine(node.kernel.host).features if type(f.state).__name__ == "Works"}
    assert {"cgroup controller cpu", "CPU burst"} <= works


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 4), st.floats(0, 30), st.sampled_from(["max", "50000", "150000"])), max_size=6))
def test_counters_never_go_back_and_no_quota_is_exceeded(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[float, float, str]]
) -> None:
    with _node(tmp_path_factory.mktemp("node")) as node:
        (job,) = node.pods(_pod("job", qos="BestEffort", label="BE"))
        best_effort, before = "kubepods.slice/kubepods-besteffort.slice", 0.0
        for cores, seconds, quota in steps:
            node.write(best_effort, "cpu.max", f"{quota} 100000")
            node.run(seconds, [PodDemand(job, cores, GIB)])
            used = node.cpu_seconds(job.cgroup) - before
            allowed = 4.0 if quota == "max" else int(quota) / 100_000
            assert -1e-6 <= used <= min(cores, allowed) * seconds + 1e-5
            before += used


# The whole of it.


def _play(tmp_path: Path, script: Script, koordlets: int, api: InMemoryApi | None = None) -> InMemoryApi:
    """A fleet of three nodes, of which the first so many run koordlet."""
    api = api or InMemoryApi()

    async def play() -> None:
        clock = cast("ManualClock", api.clock)
        fleet = Fleet(
            api.client(), scale(default_scenario(), 3),
            clock=clock, random=Random(1), concurrency=8, koordlets=koordlets, kernels=tmp_path,
        )  # fmt: skip
        running = asyncio.create_task(fleet.run())
        try:
            while not fleet.nodes:
                await clock.advance(0.5)
            await script(api, fleet, clock)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())
    return api


async def _busy_minutes(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
    api.put(PODS, pod_document("web", "small-0", cpu="4", memory="8Gi", priority=9500))
    job = pod_document("job", "small-0", cpu="2", memory="2Gi", priority=5500)
    job["metadata"]["labels"] = {"koordinator.sh/qosClass": "BE"}
    api.put(PODS, job)
    await clock.advance(460)


def _usage(metric: NodeMetric) -> dict[str, float]:
    assert metric.status.node_metric is not None
    found = {
        "node": metric.status.node_metric.node_usage.resources,
        "system": metric.status.node_metric.system_usage.resources,
        **{pod.name: pod.pod_usage.resources for pod in metric.status.pods_metric},
    }
    return {
        f"{name} {resource}": amount.milli for name, amounts in found.items() for resource, amount in amounts.items()
    }


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> InMemoryApi:
    """What there is after some minutes with koordlet on small-0."""
    return _play(tmp_path_factory.mktemp("kernels"), _busy_minutes, 1)


def test_the_coarse_model_reports_what_koordlet_measures(reported: InMemoryApi, tmp_path: Path) -> None:
    modelled_api = _play(tmp_path, _busy_minutes, 0)
    real, coarse = (convert(api.document(NODE_METRICS, "small-0"), NodeMetric) for api in (reported, modelled_api))
    measured, modelled = _usage(real), _usage(coarse)
    assert measured.keys() == modelled.keys()
    assert {"web cpu", "job memory", "system cpu"} <= measured.keys()
    for name, amount in measured.items():
        # Both average five minutes, koordlet from readings three times as dense; they report at different moments,
        # and the memory of the job still grows.
        assert amount == pytest.approx(modelled[name], rel=0.05 if name == "job memory" else 0.03), name


def test_koordlet_finds_the_topology_that_its_node_was_registered_with(tmp_path: Path) -> None:
    """It makes what was deleted again; the coarse model does not."""
    registered: list[Document] = []

    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        await clock.advance(5)
        registered.append(api.document(NODE_RESOURCE_TOPOLOGIES, "small-0"))
        for name in api.names(NODE_RESOURCE_TOPOLOGIES):
            api.remove(NODE_RESOURCE_TOPOLOGIES, name)
        api.put(PODS, pod_document("web", "small-0"))
        await clock.advance(65)

    api = _play(tmp_path, script, 1)
    assert api.names(NODE_RESOURCE_TOPOLOGIES) == ["small-0"]
    remade = api.document(NODE_RESOURCE_TOPOLOGIES, "small-0")
    (before,) = registered
    assert remade["metadata"]["annotations"] == before["metadata"]["annotations"]
    assert (remade["zones"], remade["topologyPolicies"]) == (before["zones"], before["topologyPolicies"])


def test_a_fault_stops_the_agent_and_its_end_starts_it_again(tmp_path: Path) -> None:
    reports: list[Any] = []

    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        async def annotate(fault: str | None) -> None:
            document = api.document(NODES, "small-0")
            kept = {**document["metadata"], "annotations": {FAULT_ANNOTATION: fault} if fault else {}}
            api.put(NODES, {**document, "metadata": kept})

        api.put(PODS, pod_document("web", "small-0"))
        await clock.advance(65)
        await annotate("usageAboveCapacity")
        await clock.advance(70)
        reports.append(api.document(NODE_METRICS, "small-0")["status"]["nodeMetric"]["nodeUsage"]["resources"]["cpu"])
        assert not (tmp_path / "small-0").exists()
        await annotate(None)
        await clock.advance(70)
        reports.append(api.document(NODE_METRICS, "small-0")["status"]["nodeMetric"]["nodeUsage"]["resources"]["cpu"])
        assert (tmp_path / "small-0").exists()

    _play(tmp_path, script, 1)
    assert reports[0] == "10400m"
    assert int(reports[1].removesuffix("m")) < 1000


def test_what_koordlet_does_about_best_effort_pods_shows_in_what_it_reports(tmp_path: Path) -> None:
    """The job would use all of its 6 CPUs; suppression leaves best-effort pods 30 % of 8, less what others use. The
    coarse model says nearly the same."""
    strategy = {"enable": True, "cpuSuppressThresholdPercent": 30, "cpuSuppressPolicy": "cfsQuota"}

    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        amounts = {"kubernetes.io/batch-cpu": "6000", "kubernetes.io/batch-memory": "2Gi"}
        job = pod_document("job", "small-0", cpu="", priority=5500)
        job["metadata"]["labels"] = {"koordinator.sh/qosClass": "BE"}
        job["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
        api.put(PODS, job)
        await clock.advance(400)

    found = []
    for koordlets in (1, 0):
        api = InMemoryApi()
        api.put(NODE_SLOS, {"metadata": {"name": "small-0"}, "spec": {"resourceUsedThresholdWithBE": strategy}})
        metric = convert(_play(tmp_path, script, koordlets, api).document(NODE_METRICS, "small-0"), NodeMetric)
        [pod] = metric.status.pods_metric
        assert pod.extensions is not None
        found.append((pod.pod_usage.resources["cpu"].milli, pod.extensions["Object"]["suppression"]))
    (used, said), (modelled, said_by_model) = found
    assert 1500 < used < 2400
    assert modelled == pytest.approx(used, rel=0.03)
    assert said["policy"] == said_by_model["policy"] == "cfsQuota"
    assert said_by_model["cpus"] == pytest.approx(said["cpus"], rel=0.03)
    assert said["why"].startswith("30 % of 8 CPUs, less 0 CPUs of other pods and ")
    assert said_by_model["why"].startswith("30 % of 8 CPUs, less 0 CPUs of other pods and ")


def test_the_config_map_of_koordlet_is_followed(tmp_path: Path) -> None:
    strategy = {"enable": True, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 30}

    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        job = pod_document("job", "small-0", cpu="2", memory="2Gi", priority=5500)
        job["metadata"]["labels"] = {"koordinator.sh/qosClass": "BE"}
        api.put(PODS, job)
        await clock.advance(40)
        quota = tmp_path / "small-0/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/cpu.max"
        assert not quota.read_text().startswith("max")
        metadata = {"name": "koordlet-config", "namespace": "koordinator-system"}
        api.put(CONFIG_MAPS, {"metadata": metadata, "data": {"feature-gates": "BECPUSuppress=false"}})
        await clock.advance(10)
        assert quota.read_text().startswith("max")

    api = InMemoryApi()
    api.put(NODE_SLOS, {"metadata": {"name": "small-0"}, "spec": {"resourceUsedThresholdWithBE": strategy}})
    _play(tmp_path, script, 1, api)


def test_an_agent_that_cannot_start_is_said_and_starts_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "small-0").write_text("in the way")

    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        api.put(PODS, pod_document("web", "small-0"))
        await clock.advance(65)
        # The coarse model reports meanwhile.
        assert api.names(NODE_METRICS) == api.names(NODES)
        (tmp_path / "small-0").unlink()
        await clock.advance(40)
        assert (tmp_path / "small-0").is_dir()

    _play(tmp_path, script, 1)
    assert "koordlet of node small-0 has failed; it starts again in 30 s" in caplog.text


def test_a_node_without_pods_has_no_agent_and_its_system_is_reported(tmp_path: Path) -> None:
    async def script(api: InMemoryApi, fleet: Fleet, clock: ManualClock) -> None:
        await clock.advance(130)

    api = _play(tmp_path, script, 3)
    assert list(tmp_path.iterdir()) == []
    assert api.document(NODE_METRICS, "small-0")["status"]["nodeMetric"]["systemUsage"]["resources"]


def test_koordlets_without_a_folder_for_their_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match="their kernels need a folder"):
        Fleet(InMemoryApi().client(), default_scenario(), koordlets=1)
