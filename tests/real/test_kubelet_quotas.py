"""What koordlet makes of the limits that a real kubelet gives pods of many shapes: nothing while no feature is on, what
the feature says on top of the kubelet's value while one is, and the kubelet's value again afterwards."""

from __future__ import annotations

import copy
import itertools
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.koordlet.pods.node_pod import NodePod, node_pods
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.kernel_files import quota_of_milli, shares_of_milli
from tests.real.node_pods import offer_batch
from tests.real.polling import until
from tests.real.programs import RealPrograms
from tests.real.real_node import EnforcedNode, real_node
from tests.real_world.kubelet_configurations import KubeletSettings, kubelet_settings
from tests.real_world.pods import PODS, PodShape

_NODE = "quota-node"
_NAMESPACE = "kubelet-quotas"
_LAYOUT = CgroupLayout("/sys/fs/cgroup", CgroupVersion.V1, CgroupDriver.CGROUPFS)
_FILES: Final = {
    "cpu.cfs_quota_us": "cpu",
    "cpu.cfs_period_us": "cpu",
    "cpu.cfs_burst_us": "cpu",
    "cpu.shares": "cpu",
    "memory.limit_in_bytes": "memory",
    "cpuset.cpus": "cpuset",
}
_UNLIMITED_MEMORY: Final = 1 << 62
_DEBUGGED: Final = "ephemeral-container"
_SMALL: Final = "10m"
_ROUNDS: Final = 5
"""So many passes of koordlet are waited for, by its own count."""
_WITH_REQUESTS: Final = ("guaranteed", "resize-infeasible", "resize-deferred")
"""The others request little, so that all of them have room on a node of two CPUs; their limits are as they were."""
_REFUSED: Final = {"pod-resize-infeasible", "pod-resize-deferred"}
_SHAPES: Final = tuple(shape for shape in PODS if not shape.is_static and shape.name != "resize-in-progress")
Files = dict[str, str]
"""Path below the root of cgroups -> content."""


@dataclass
class Bench:
    """A node with a pod of each shape."""

    node: EnforcedNode
    settings: KubeletSettings
    folder: Path
    programs: RealPrograms
    names: dict[str, str] = field(default_factory=dict)
    """Of pods, by UID."""
    runs: Iterator[int] = field(default_factory=itertools.count)

    @property
    def pods(self) -> list[NodePod]:
        listed = self.node.get("pods", namespace=_NAMESPACE)["items"]
        return list(node_pods([convert(each, Pod) for each in listed], _LAYOUT))

    def files(self) -> Files:
        """All files of limits below the folder of pods, with the names of the pods instead of their UIDs."""
        found: Files = {}
        for name, controller in _FILES.items():
            root = Path("/sys/fs/cgroup", controller)
            for path in root.glob(f"kubepods/**/{name}"):
                where = str(path.relative_to(root))
                for uid, pod in self.names.items():
                    where = where.replace(f"pod{uid}", f"pod-{pod}")
                found[where] = path.read_text().strip()
        return found

    def write_back(self, files: Files) -> None:
        """As the kubelet had them, for another agent."""
        uids = {f"pod-{pod}": uid for uid, pod in self.names.items()}
        now = self.files()
        # A parent has to have room before its children, and the other way round: twice does for two levels.
        for _ in range(3):
            for where, content in files.items():
                parts = [f"pod{uids[part]}" if part in uids else part for part in where.split("/")]
                path = Path("/sys/fs/cgroup", _FILES[parts[-1]], *parts)
                if content != now.get(where) and path.read_text().strip() != content:
                    try:
                        path.write_text(content)
                    except OSError:
                        continue
        assert self.files() == files

    @contextmanager
    def koordlet(self, *arguments: str) -> Iterator[None]:
        """Until it has made several passes, and has been told of all pods; it is killed at the end."""
        log = self.folder / f"koordlet-{next(self.runs)}.log"
        flags = ("--kubelet-sync-interval=1s", "--runtime-hooks-reconcile-interval=1s", "--v=4", *arguments)
        agent = self.node.start_koordlet(log, *flags)
        try:
            until(lambda: "cgroup version" in log.read_text(), 90, "koordlet begins")
            yield
        except AssertionError as error:
            error.add_note(log.read_text()[-6000:])
            raise
        finally:
            agent.send_signal(signal.SIGKILL)
            agent.wait(20)

    def steady(self, least: int = 10) -> Files:
        """The files when they have not changed for some seconds."""
        last: list[Files] = []

        def is_steady() -> bool:
            last.append(self.files())
            return len(last) > least and all(each == last[-1] for each in last[-4:])

        _every_second(is_steady, 90)
        return last[-1]

    def annotate_node(self, ratio: str | None) -> None:
        key = "node.koordinator.sh/cpu-normalization-ratio"
        patch = json.dumps({"metadata": {"annotations": {key: ratio}}})
        self.node.kubectl("patch", "node", self.node.name, "--type=merge", "-p", patch)

    def show_slo(self, strategy: Mapping[str, Any] | None) -> None:
        if strategy is None:
            self.node.kubectl("delete", "nodeslo", self.node.name, "--ignore-not-found")
        else:
            document = {"metadata": {"name": self.node.name}, "spec": {"cpuBurstStrategy": dict(strategy)}}
            self.node.apply({"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", **document})


def _every_second(holds: Any, seconds: float) -> None:
    def slowly() -> bool:
        subprocess.run(["sleep", "1"], check=True)
        return bool(holds())

    until(slowly, seconds, "the files are steady")


def _with_room(document: dict[str, Any]) -> dict[str, Any]:
    """The pod, or a patch of it, with small requests of CPU wherever it has any."""
    spec = document["spec"]
    for holder in (spec, *spec.get("containers", ()), *spec.get("initContainers", ())):
        requests = holder.get("resources", {}).get("requests", {})
        if "cpu" in requests and requests["cpu"] != "1m":
            requests["cpu"] = _SMALL
    return document


def _create(node: EnforcedNode, shape: PodShape) -> None:
    document = shape.document(_NAMESPACE, node=_NODE)
    node.apply(document if shape.name in _WITH_REQUESTS else _with_room(document))


def _change(node: EnforcedNode, shape: PodShape) -> None:
    for change in shape.changes:
        patch = copy.deepcopy(dict(change.patch))
        patch = patch if shape.name in _WITH_REQUESTS or change.subresource != "resize" else _with_room(patch)
        flags = [f"--subresource={change.subresource}"] if change.subresource == "resize" else []
        if change.subresource == "ephemeralcontainers":
            path = f"/api/v1/namespaces/{_NAMESPACE}/pods/{shape.name}"
            pod = node.get("pods", shape.name, namespace=_NAMESPACE)
            pod["spec"]["ephemeralContainers"] = patch["spec"]["ephemeralContainers"]
            status, response = node.administrator.request("PUT", f"{path}/ephemeralcontainers", pod)
            assert status == 200, response
            continue
        node.kubectl("patch", "pod", shape.name, "-n", _NAMESPACE, *flags, "-p", json.dumps(patch))


def _is_as_wanted(bench: Bench) -> bool:
    """Whether the kubelet has started all pods and has had a look at all resizes."""
    pods = {each.pod.metadata.name: each.pod for each in bench.pods}
    running = all(each.status.phase == "Running" for each in pods.values())
    waiting = {
        name for name, pod in pods.items() if any(each.type == "PodResizePending" for each in pod.status.conditions)
    }
    busy = any(each.type == "PodResizeInProgress" for pod in pods.values() for each in pod.status.conditions)
    return running and not busy and waiting == {"resize-infeasible", "resize-deferred"}


@pytest.fixture(scope="module", params=["default", "short-quota-period", "no-quota"])
def bench(request: pytest.FixtureRequest, real_cluster: Path, real_programs: RealPrograms) -> Iterator[Bench]:
    settings = kubelet_settings(request.param)
    with (
        tempfile.TemporaryDirectory(prefix="kqn", ignore_cleanup_errors=True) as name,
        real_node(real_cluster, Path(name, "node"), _NODE, _NAMESPACE, **settings.environment) as node,
    ):
        offer_batch(node, "2000")
        for needed in {json.dumps(each) for shape in _SHAPES for each in shape.needs}:
            node.apply(json.loads(needed))
        made = Bench(node, settings, Path(name), real_programs)
        for shape in _SHAPES:
            _create(node, shape)
        until(lambda: _all_run(made), 180, "all pods run")
        for shape in _SHAPES:
            _change(node, shape)
        until(lambda: _is_as_wanted(made), 120, "all resizes are done or refused")
        made.names = {each.uid: each.pod.metadata.name for each in made.pods}
        _nest(made)
        yield made
        made.show_slo(None)


def _all_run(bench: Bench) -> bool:
    """Ends the init containers, which would run until they are told to end."""
    pods = bench.pods
    for pod in pods:
        sidecars = [each.name for each in pod.pod.spec.init_containers if each.restart_policy == "Always"]
        for container in pod.init_containers:
            if not container.has_ended and container.name not in sidecars:
                # It may have ended since it was listed.
                with suppress(OSError):
                    processes = Path(_LAYOUT.folder("cpu", container.cgroup), "cgroup.procs").read_text()
                    for process in processes.split():
                        os.kill(int(process), signal.SIGTERM)
    return all(each.pod.status.phase == "Running" for each in pods)


def _nest(bench: Bench) -> None:
    """What a container that runs containers itself makes below its own cgroup."""
    (pod,) = (each for each in bench.pods if each.pod.metadata.name == "nested-cgroups")
    for controller in ("cpu", "memory"):
        Path(_LAYOUT.folder(controller, pod.containers[0].cgroup), "init").mkdir()


def _differences(before: Files, after: Files) -> dict[str, tuple[str | None, str | None]]:
    return {
        where: (before.get(where), after.get(where))
        for where in before.keys() | after.keys()
        if before.get(where) != after.get(where)
    }


def _read(controller: str, folder: str, name: str) -> int:
    return int(Path(_LAYOUT.folder(controller, folder), name).read_text())


def _folders(bench: Bench) -> Iterator[tuple[str, str, Any]]:
    """What it is, its folder and what the kubelet gives it, of all pods and of their containers that run."""
    for pod in bench.pods:
        name = pod.pod.metadata.name
        yield name, pod.cgroup, pod.grant.pod
        for container in (*pod.containers, *pod.init_containers):
            if not container.has_ended:
                yield f"{name} {container.name}", container.cgroup, pod.grant.containers[container.name]


def test_the_kubelet_gives_what_is_counted(bench: Bench) -> None:
    enforces = bench.settings.fields.get("cpuCFSQuota") is not False
    counted: dict[str, tuple[int, int, int | None]] = {}
    shown: dict[str, tuple[int, int, int | None]] = {}
    for what, folder, grant in _folders(bench):
        period = _read("cpu", folder, "cpu.cfs_period_us")
        memory = _read("memory", folder, "memory.limit_in_bytes")
        quota = quota_of_milli(grant.cpu_limit or 0, period) if enforces else -1
        counted[what] = quota, shares_of_milli(grant.cpu_request), grant.memory_limit
        shares = _read("cpu", folder, "cpu.shares")
        shown[what] = _read("cpu", folder, "cpu.cfs_quota_us"), shares, memory if memory < _UNLIMITED_MEMORY else None
    assert counted == shown
    assert len(counted) > 2 * len(_SHAPES)


def test_nothing_changes_on_a_node_without_a_policy(bench: Bench) -> None:
    """But for pods that have CPUs of their own or batch resources, and for the CPUs that the others share."""
    before = bench.files()
    with bench.koordlet():
        changed = _differences(before, bench.steady())
    bench.write_back(before)
    assert _pods_with_other_limits(changed) <= {"pod-batch", "pod-pinned"}


def test_no_file_changes_that_the_original_leaves(bench: Bench) -> None:
    """It needs a NodeSLO to look after its pods, and grants resizes that the kubelet has refused."""
    if bench.settings.name == "short-quota-period":
        pytest.skip("it gives batch pods quotas for 100 ms in periods of 20 ms, which the kernel refuses")
    before = bench.files()
    bench.show_slo({"policy": "none"})
    with bench.koordlet():
        changed = _differences(before, bench.steady())
    # It knows no containers for debugging, and beside them no sandbox.
    ours = {where: values for where, values in changed.items() if not _is_debugged(where)}
    assert all(where.endswith("cpuset.cpus") for where in changed.keys() - ours.keys())
    bench.write_back(before)
    flags = ("--kubelet-sync-interval=1s", "--runtime-hooks-reconcile-interval=1s")
    try:
        with bench.node.original(bench.programs, bench.folder / "original", *flags):
            # It begins late.
            until(lambda: _differences(before, bench.files()).keys() >= ours.keys(), 90, "the original writes as much")
            theirs = _differences(before, bench.steady())
    finally:
        bench.write_back(before)
    assert _pods_with_other_limits(ours) <= {"pod-batch", "pod-pinned"}
    assert ours.keys() <= theirs.keys()
    if bench.settings.name == "default":
        assert {where: theirs[where] for where in ours} == ours
        assert _pods_with_other_limits(theirs) - _pods_with_other_limits(ours) <= _REFUSED


def _is_debugged(where: str) -> bool:
    return any(part.startswith(f"pod-{_DEBUGGED}") for part in where.split("/"))


def _pods_with_other_limits(changed: Mapping[str, object]) -> set[str]:
    limits = (where for where in changed if not where.endswith("cpuset.cpus"))
    return {part for where in limits for part in where.split("/") if part.startswith("pod-")}


def test_nothing_changes_where_the_policy_enables_nothing(bench: Bench) -> None:
    before = bench.files()
    bench.show_slo({"policy": "none"})
    with bench.koordlet("--feature-gates=CPUSetAllocator=false,BatchResource=false"):
        assert _differences(before, bench.steady()) == {}


def test_a_ratio_divides_what_the_kubelet_gives_and_goes_again(bench: Bench) -> None:
    """With a koordlet that is killed in between."""
    before = bench.files()
    gates = "CPUSetAllocator=false,BatchResource=false"
    bench.annotate_node("2.0")
    try:
        with bench.koordlet(f"--feature-gates={gates},CPUNormalization=true"):
            changed = _differences(before, bench.steady())
    finally:
        bench.annotate_node(None)
    normalised = {
        where: (content, str(max(-(-int(content) // 2), 1000)))
        for where, content in before.items()
        if where.endswith("cpu.cfs_quota_us") and int(content) > 1000 and "/pod-pinned/" not in where
    }
    assert changed == normalised
    assert bool(normalised) == (bench.settings.name != "no-quota")
    with bench.koordlet(f"--feature-gates={gates}"):
        assert _differences(before, bench.steady()) == {}


def test_a_burst_is_counted_in_the_kubelets_period_and_goes_again(bench: Bench) -> None:
    before = bench.files()
    bench.show_slo({"policy": "cpuBurstOnly", "cpuBurstPercent": 50})
    gates = "--feature-gates=CPUSetAllocator=false,BatchResource=false"
    with bench.koordlet(gates):
        changed = _differences(before, bench.steady())
    wrong = {}
    for what, folder, grant in _folders(bench):
        if what.split()[0] == "pinned" or " " not in what or what.split()[1] in ("proxy", "log"):
            continue
        period, quota = _read("cpu", folder, "cpu.cfs_period_us"), _read("cpu", folder, "cpu.cfs_quota_us")
        wanted = min((grant.cpu_limit or 0) * period // 2000, max(quota, 0))
        if (found := _read("cpu", folder, "cpu.cfs_burst_us")) != wanted:
            wrong[what] = found, wanted
    assert wrong == {}
    assert {where.rpartition("/")[2] for where in changed} <= {"cpu.cfs_burst_us"}
    bench.show_slo({"policy": "none"})
    with bench.koordlet(gates):
        assert _differences(before, bench.steady()) == {}


def test_a_pod_is_resized_while_a_feature_is_on(bench: Bench) -> None:
    """The kubelet's writes are neither refused nor undone, and the feature starts from its new value."""
    bench.annotate_node("2.0")
    (pod,) = (each for each in bench.pods if each.pod.metadata.name == "resized-up")
    folders = (pod.cgroup, pod.containers[0].cgroup)
    is_enforced = bench.settings.fields.get("cpuCFSQuota") is not False

    def quotas() -> list[int]:
        return [_read("cpu", folder, "cpu.cfs_quota_us") for folder in folders]

    def resize(limit: str) -> None:
        resources = {"requests": {"cpu": _SMALL}, "limits": {"cpu": limit}}
        patch = json.dumps({"spec": {"containers": [{"name": "main", "resources": resources}]}})
        bench.node.kubectl("patch", "pod", "resized-up", "-n", _NAMESPACE, "--subresource=resize", "-p", patch)

    period = _read("cpu", folders[0], "cpu.cfs_period_us")
    try:
        with bench.koordlet("--feature-gates=CPUNormalization=true,CPUSetAllocator=false,BatchResource=false"):
            for limit, milli in (("800m", 800), ("300m", 300), ("500m", 500)):
                resize(limit)
                wanted = quota_of_milli(milli, period) // 2 if is_enforced else -1
                until(lambda wanted=wanted: quotas() == [wanted] * 2, 60, f"{limit}: {quotas()}")  # type: ignore[misc]
    finally:
        bench.annotate_node(None)
    with bench.koordlet("--feature-gates=CPUSetAllocator=false,BatchResource=false"):
        kubelet = quota_of_milli(500, period) if is_enforced else -1
        until(lambda: quotas() == [kubelet] * 2, 60, "the kubelet's value returns")
