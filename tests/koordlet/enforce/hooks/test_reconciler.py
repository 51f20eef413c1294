"""The reconciler: what the files of running pods show after it has gone over them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koordinator.koordlet.enforce.hooks.contexts import starting_pod
from tests.koordlet.enforce.hooks.hook_fixtures import BATCH, CPU_QOS, GIB, rules, status
from tests.koordlet.enforce.hooks.hooked_node import HookedNode
from tests.koordlet.enforce.strategies.qos_fixtures import policy


def test_pods_get_their_group_identities(tmp_path: Path) -> None:
    node = HookedNode(tmp_path)
    online, batch = node.run_pod("web", "LS"), node.run_pod("sort", "BE")
    node.run_hooks()
    assert node.of_pod(online, "cpu.bvt_warp_ns") == ["1", "1", "1"]
    assert node.of_pod(batch, "cpu.bvt_warp_ns") == ["-1", "-1", "-1"]
    folders = ("kubepods", "kubepods/burstable", "kubepods/besteffort")
    assert [node.shown(folder, "cpu.bvt_warp_ns") for folder in folders] == ["0", "1", "-1"]


def test_a_pod_that_kubelet_does_not_tell_of_has_the_value_of_its_folder(tmp_path: Path) -> None:
    node = HookedNode(tmp_path)
    for folder in ("kubepods/besteffort/podgone", "kubepods/besteffort/podgone/c"):
        node.add_cgroup(folder)
    node.run_hooks()
    assert node.shown("kubepods/besteffort/podgone/c", "cpu.bvt_warp_ns") == "-1"


def test_a_pod_with_cpus_of_its_own_has_them(tmp_path: Path) -> None:
    node = HookedNode(tmp_path)
    pod = node.run_pod("db", "LSR", annotations=status(cpuset="2,3"), resources={"cpu": "2", "memory": "1Gi"})
    for folder in (pod.cgroup, pod.containers[0].cgroup):
        node.machine.write(f"/sys/fs/cgroup/cpu/{folder}/cpu.cfs_quota_us", "200000\n")
    node.run_hooks()
    assert node.of_pod(pod, "cpuset.cpus") == ["0-7", "2-3", "2-3"]
    assert node.of_pod(pod, "cpu.cfs_quota_us") == ["-1", "-1", "-1"]


def test_a_batch_pod_is_held_to_its_batch_resources(tmp_path: Path) -> None:
    node = HookedNode(tmp_path)
    pod = node.run_pod("sort", "BE", resources=BATCH)
    node.run_hooks()
    assert node.of_pod(pod, "cpu.shares") == ["512", "1024", "512"]
    assert node.of_pod(pod, "cpu.cfs_quota_us") == ["50000", "-1", "50000"]
    limits = node.of_pod(pod, "memory.limit_in_bytes")
    assert (limits[0], limits[2]) == (str(GIB), str(GIB))


def test_a_pod_is_taken_care_of_before_kubelet_reports_it(tmp_path: Path) -> None:
    node = HookedNode(tmp_path)
    node.add_cgroup("kubepods/besteffort/podnew")
    node.reconciler.start(
        starting_pod("shop", "new", "new", {"koordinator.sh/qosClass": "BE"}, {}, "/kubepods/besteffort/podnew"),
        node.rules,
    )
    assert node.shown("kubepods/besteffort/podnew", "cpu.bvt_warp_ns") == "-1"


def test_a_gate_that_is_off_leaves_what_kubelet_gives(tmp_path: Path) -> None:
    """Switched off while pods run: what was written is undone, at the next start of the agent."""
    untouched, node = HookedNode(tmp_path / "a"), HookedNode(tmp_path / "b")
    for each in (untouched, node):
        each.run_pod("sort", "BE", resources=BATCH)
        each.run_pod("db", "LSR", annotations=status(cpuset="2"), kubernetes_qos="Burstable")
    before = untouched.everything()
    node.run_hooks()
    changed = {path for path, content in node.everything().items() if content != before[path]}
    off = HookedNode(tmp_path / "b", GroupIdentity=False, CPUSetAllocator=False, BatchResource=False)
    off.pods = node.pods
    off.run_hooks()
    left = {path: content for path, content in off.everything().items() if content != before[path]}
    shares = {path for path in changed if path.endswith("cpu.shares")}
    # The fixture's 1024 is what a cgroup has at first, kubelet gives 2 to pods without a request.
    assert {path for path in left if not path.endswith("memory.limit_in_bytes")} == shares
    assert set(left.values()) <= {"2", "-1", "9223372036854771712"}


def test_a_bad_annotation_stops_one_hook_of_one_pod_and_is_reported_once(tmp_path: Path) -> None:
    node = HookedNode(tmp_path)
    bad = node.run_pod("bad", "LSR", annotations={"scheduling.koordinator.sh/resource-status": "{"})
    good = node.run_pod("good", "LSR", annotations=status(cpuset="2"))
    for _ in range(2):
        node.run_hooks()
    assert node.of_pod(bad, "cpuset.cpus") == ["0-7", "0-7", "0-7"]
    assert node.of_pod(bad, "cpu.bvt_warp_ns") == ["2", "2", "2"]
    assert node.of_pod(good, "cpuset.cpus") == ["0-7", "2", "2"]
    assert len(node.notes) == 1
    assert "resource-status" in node.notes[0]


def test_programs_beside_kubernetes_are_taken_care_of(tmp_path: Path) -> None:
    node = HookedNode(tmp_path)
    node.rules = rules(policy=policy(resourceQOSStrategy=CPU_QOS, hostApplications=[{"name": "nginx", "qos": "LS"}]))
    node.add_cgroup("host-latency-sensitive/nginx")
    node.run_hooks()
    assert node.shown("host-latency-sensitive/nginx", "cpuset.cpus") == "0-2,4-6"
    assert node.shown("host-latency-sensitive/nginx", "cpu.bvt_warp_ns") == "1"


def test_what_hooks_were_called_is_counted_by_level_and_file(tmp_path: Path) -> None:
    node = HookedNode(tmp_path)
    node.run_pod("sort", "BE", resources=BATCH)
    node.run_hooks()
    assert {("pod", "cpu.shares", "success"), ("container", "memory.limit_in_bytes", "success")} <= set(node.observed)


def test_pods_in_virtual_machines_have_no_containers_here(tmp_path: Path) -> None:
    node = HookedNode(tmp_path)
    pod = node.run_pod("vm", "BE", resources=BATCH, spec={"runtimeClassName": "kata"})
    node.run_hooks()
    assert node.of_pod(pod, "cpu.shares") == ["512", "1024", "1024"]


def test_a_debugging_container_is_kept_at_what_its_pod_has(tmp_path: Path) -> None:
    node = HookedNode(tmp_path, OOMScoreAdj=True)
    debugging = {"ephemeralContainerStatuses": [{"name": "debug", "containerID": "containerd://debugger"}]}
    annotations = status(cpuset="2,3") | {"koordinator.sh/oom-score-adj": "500"}
    pod = node.run_pod("db", "LSE", annotations=annotations, status=debugging)
    (debugger,) = pod.ephemeral_containers
    node.machine.write(f"/sys/fs/cgroup/cpu/{debugger.cgroup}/cgroup.procs", "7\n")
    node.machine.write("/proc/7/oom_score_adj", "3\n")
    node.run_hooks()
    assert node.shown(debugger.cgroup, "cpuset.cpus") == "2-3"
    assert node.of_pod(pod, "cpuset.cpus") == ["0-7", "2-3", "2-3"]
    assert (node.machine.root / "proc/7/oom_score_adj").read_text().strip() == "500"


def test_processes_get_the_oom_score_of_their_containers_annotation(tmp_path: Path) -> None:
    node = HookedNode(tmp_path, OOMScoreAdj=True)
    annotations = {"koordinator.sh/oom-score-adj": "500", "koordinator.sh/oom-score-adj-spec": '{"other": -5}'}
    pod = node.run_pod("web", "LS", annotations=annotations)
    node.machine.write(f"/sys/fs/cgroup/cpu/{pod.containers[0].cgroup}/cgroup.procs", "7\n8\n")
    node.machine.write(f"/sys/fs/cgroup/cpu/{pod.cgroup}/sandbox-web/cgroup.procs", "9\n")
    for process in (7, 8, 9):
        node.machine.write(f"/proc/{process}/oom_score_adj", "3\n")
    node.run_hooks()
    scores = [(node.machine.root / f"proc/{process}/oom_score_adj").read_text().strip() for process in (7, 8, 9)]
    assert scores == ["500", "500", "3"]
    assert node.reconciler.oom_scores == {("shop", "web", "web", "c"): 500}
    # Another process has the number 8 by the next round, whoever's.
    node.machine.write("/proc/8/oom_score_adj", "0\n")
    asyncio.run(node.clock.advance(61))
    node.executor.apply()
    assert (node.machine.root / "proc/8/oom_score_adj").read_text() == "0\n"


@pytest.mark.parametrize(
    "annotations", [{"oom-score-adj": "1001"}, {"oom-score-adj": "x"}, {"oom-score-adj-spec": "{"}]
)
def test_a_bad_oom_score_is_reported(tmp_path: Path, annotations: dict[str, str]) -> None:
    node = HookedNode(tmp_path, OOMScoreAdj=True)
    node.run_pod("web", "LS", annotations={f"koordinator.sh/{key}": text for key, text in annotations.items()})
    node.run_hooks()
    assert ["oom-score-adj" in note for note in node.notes] == [True]


def test_what_kubelet_writes_while_it_makes_a_pods_cgroup_does_not_stay(tmp_path: Path) -> None:
    """koordlet may have seen the folder before kubelet has written into it; the runtime tells of the pod after that."""
    node = HookedNode(tmp_path)
    pod = node.run_pod("sort", "BE", resources=BATCH)
    node.run_hooks()
    node.machine.write(f"/sys/fs/cgroup/cpu/{pod.cgroup}/cpu.shares", "2\n")
    labels = {"koordinator.sh/qosClass": "BE"}
    node.reconciler.start(starting_pod("shop", "sort", "sort", labels, {}, f"/{pod.cgroup}"), node.rules)
    assert node.shown(pod.cgroup, "cpu.shares") == "512"


def test_what_the_start_of_a_pod_costs_does_not_depend_on_the_others(tmp_path: Path) -> None:
    calls: list[int] = []
    for others in (2, 20):
        node = HookedNode(tmp_path / str(others))
        for number in range(others):
            node.run_pod(f"pod-{number}", "LS" if number % 2 else "BE")
        node.run_hooks()
        node.observed.clear()
        node.add_cgroup("kubepods/besteffort/podnew")
        node.reconciler.start(
            starting_pod("shop", "new", "new", {"koordinator.sh/qosClass": "BE"}, {}, "/kubepods/besteffort/podnew"),
            node.rules,
        )
        assert node.shown("kubepods/besteffort/podnew", "cpu.bvt_warp_ns") == "-1"
        calls.append(len(node.observed))
    assert calls[0] == calls[1]
