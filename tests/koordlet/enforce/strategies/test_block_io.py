"""Block I/O: which cgroup gets which limit of which disk, what is released, and what authors are told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.base.clock import ManualClock
from koordinator.koordlet.enforce.executor.desired_settings import Outcome, Priority
from koordinator.koordlet.enforce.strategies.block_io import ROOT, Disks, claims, decide, neutral
from koordinator.koordlet.enforce.strategies.snapshot import Decision, PodUsage, Snapshot
from koordinator.node.block_devices import BlockDevices
from koordinator.node.cgroup_layout import CgroupVersion
from koordinator.node.kernel_files import (
    BLOCK_COST_MODEL,
    BLOCK_COST_QOS,
    BLOCK_READ_BPS,
    BLOCK_READ_IOPS,
    BLOCK_WEIGHT,
    BLOCK_WRITE_BPS,
    BLOCK_WRITE_IOPS,
    KernelFile,
    Target,
    Value,
)
from tests.koordlet.enforce.executor.fake_kernel import FakeKernel
from tests.koordlet.enforce.strategies.qos_fixtures import BEST_EFFORT, LAYOUT, pod_usage, policy, snapshot

DEVICES = BlockDevices(
    disks={"/dev/sda": "8:0", "/dev/sdb": "8:16"},
    partitions={"/dev/sda1": "/dev/sda"},
    volume_groups={"pool": "/dev/sdb"},
    logical_volumes={"/dev/mapper/pool-data": "pool"},
    mounts={
        "/var/lib/kubelet/pods/uid-db/volumes/kubernetes.io~csi/pv-1/mount": "/dev/mapper/pool-data",
        "/var/lib/kubelet/pods/uid-db/volumes/kubernetes.io~csi/scratch/mount": "/dev/sda1",
        "/var/lib/kubelet/pods/uid-db/volumes/kubernetes.io~csi/pv-2/mount": "/dev/sdb",
    },
)
NAMES = {("shop", "data"): "pv-1", ("shop", "db-cache"): "pv-2", ("shop", "new"): ""}
VOLUMES = [
    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    {"name": "scratch", "csi": {"driver": "local"}},
    {"name": "cache", "ephemeral": {}},
    {"name": "unbound", "persistentVolumeClaim": {"claimName": "new"}},
    {"name": "temporary", "emptyDir": {}},
]
NOTHING: frozenset[str] = frozenset()

Shown = Mapping[str, Mapping[KernelFile, Mapping[str, Value]]]


def block(name: str = "/dev/sda", type_: str = "device", **config: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "ioCfg": config}


def node_snapshot(*pods: PodUsage, is_enabled: bool = True, **classes: list[dict[str, Any]]) -> Snapshot:
    strategy = {name: {"blkioQOS": {"enable": is_enabled, "blocks": blocks}} for name, blocks in classes.items()}
    return snapshot(policy=policy(resourceQOSStrategy=strategy), pods=pods)


def database(*blocks: dict[str, Any], text: str | None = None) -> PodUsage:
    """A pod with volumes of each kind, whose annotation names the blocks."""
    annotation = json.dumps({"blocks": blocks}) if text is None else text
    usage = pod_usage("db", annotations={"koordinator.sh/blkioQOS": annotation})
    document = msgspec.to_builtins(usage.pod.pod)
    document["spec"]["volumes"] = VOLUMES
    made = msgspec.structs.replace(usage.pod.pod, spec=convert(document, Pod).spec)
    return PodUsage(type(usage.pod)(**{**_members(usage.pod), "pod": made}), 0.0, 0.0, usage.containers)


def _members(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def decision(given_: Snapshot, shown: Shown | None = None, limited: frozenset[str] | None = NOTHING) -> Decision:
    disks = Disks(DEVICES, "/var/lib/kubelet", shown or {}, NAMES)
    return decide(given_, LAYOUT, disks, limited)[0]


def values(decided: Decision, folder: str = BEST_EFFORT) -> dict[tuple[KernelFile, str], Value]:
    """By file and device, of one cgroup."""
    assert decided.settings is not None
    return {(w.target.file, w.target.part): w.value for w in decided.settings if w.target.folder == folder}


def texts(decided: Decision) -> list[str]:
    return [problem.text for problem in decided.problems]


def test_the_class_of_best_effort_pods_is_limited() -> None:
    decided = decision(node_snapshot(beClass=[block(readIOPS=100, writeBPS=1 << 20, ioWeightPercent=40)]))
    assert values(decided) == {
        (BLOCK_READ_IOPS, "8:0"): 100,
        (BLOCK_READ_BPS, "8:0"): 0,
        (BLOCK_WRITE_IOPS, "8:0"): 0,
        (BLOCK_WRITE_BPS, "8:0"): 1 << 20,
        (BLOCK_WEIGHT, "8:0"): 40,
    }


@pytest.mark.parametrize(
    ("name", "type_", "number"),
    [("/dev/sda", "device", "8:0"), ("/dev/sda1", "device", "8:0"), ("pool", "volumegroup", "8:16")],
)
def test_a_block_is_found_on_its_disk(name: str, type_: str, number: str) -> None:
    found = values(decision(node_snapshot(beClass=[block(name, type_, readBPS=1)])))
    assert {device for _, device in found} == {number}


@pytest.mark.parametrize(("volume", "number"), [("data", "8:16"), ("scratch", "8:0"), ("cache", "8:16")])
def test_the_volume_of_a_pod_is_limited_in_its_cgroup(volume: str, number: str) -> None:
    pod = database(block(volume, "podvolume", writeIOPS=7))
    found = values(decision(node_snapshot(pod)), pod.pod.cgroup)
    assert found[BLOCK_WRITE_IOPS, number] == 7


def test_an_annotation_has_the_priority_of_a_pod() -> None:
    decided = decision(node_snapshot(database(block(readBPS=1))))
    assert {setting.priority for setting in decided.settings or ()} == {Priority.POD}


def test_the_root_gets_latency_targets_and_a_model() -> None:
    model: dict[str, Any] = {
        "enableUserModel": True,
        "modelReadBPS": 6,
        "modelReadSeqIOPS": 5,
        "modelReadRandIOPS": 4,
        "modelWriteBPS": 3,
        "modelWriteSeqIOPS": 2,
        "modelWriteRandIOPS": 1,
    }
    decided = decision(node_snapshot(cgroupRoot=[block(readLatency=2000, writeLatencyPercent=90, **model)]))
    assert values(decided, ROOT) == {
        (BLOCK_COST_QOS, "8:0"): "enable=1 ctrl=user rpct=95 rlat=2000 wpct=90 wlat=3000",
        (BLOCK_COST_MODEL, "8:0"): "ctrl=user rbps=6 rseqiops=5 rrandiops=4 wbps=3 wseqiops=2 wrandiops=1",
    }


def test_a_disk_without_a_model_has_the_kernels_own() -> None:
    assert values(decision(node_snapshot(cgroupRoot=[block()])), ROOT)[BLOCK_COST_MODEL, "8:0"] == "ctrl=auto"


LEFT: Shown = {
    BEST_EFFORT: {BLOCK_READ_BPS: {"8:16": 5}, BLOCK_WEIGHT: {"8:0": 100, "8:16": 40}},
    ROOT: {BLOCK_COST_QOS: {"8:16": "enable=1 ctrl=user rpct=95"}, BLOCK_COST_MODEL: {"8:16": "ctrl=auto"}},
}


def test_a_disk_that_is_not_named_any_more_is_released() -> None:
    decided = decision(node_snapshot(beClass=[block(readBPS=9)]), LEFT)
    released = {setting.target.part for setting in decided.settings or () if setting.priority is Priority.RELEASE}
    assert released == {"8:16"}
    assert values(decided)[BLOCK_READ_BPS, "8:16"] == 0


def test_a_class_that_is_switched_off_is_released() -> None:
    decided = decision(node_snapshot(beClass=[block(readBPS=9)], cgroupRoot=[block()], is_enabled=False), LEFT)
    assert values(decided) == {(BLOCK_READ_BPS, "8:16"): 0, (BLOCK_WEIGHT, "8:16"): 100}
    assert values(decided, ROOT) == {(BLOCK_COST_QOS, "8:16"): "enable=0"}


def test_nothing_is_released_while_a_disk_is_not_known() -> None:
    decided = decision(node_snapshot(beClass=[block(readBPS=9), block("/dev/gone")]), LEFT)
    assert {device for _, device in values(decided)} == {"8:0"}


def test_a_pod_that_loses_its_annotation_is_released_and_then_forgotten() -> None:
    pod = pod_usage("web")
    disks = Disks(DEVICES, "/var/lib/kubelet", {pod.pod.cgroup: {BLOCK_READ_BPS: {"8:0": 5}}}, NAMES)
    decided, limited = decide(node_snapshot(pod), LAYOUT, disks, frozenset({"uid-web"}))
    assert values(decided, pod.pod.cgroup) == {(BLOCK_READ_BPS, "8:0"): 0}
    assert limited == frozenset({"uid-web"})
    _, limited = decide(node_snapshot(pod), LAYOUT, Disks(DEVICES, "/var/lib/kubelet"), limited)
    assert limited == NOTHING


def test_what_an_agent_before_has_left_on_a_pod_is_released() -> None:
    pod = pod_usage("web")
    decided = decision(node_snapshot(pod), {pod.pod.cgroup: {BLOCK_READ_BPS: {"8:0": 5}}}, limited=None)
    assert values(decided, pod.pod.cgroup) == {(BLOCK_READ_BPS, "8:0"): 0}


def test_pods_that_come_later_are_still_looked_at() -> None:
    _, limited = decide(node_snapshot(), LAYOUT, Disks(DEVICES, "/var/lib/kubelet"), None)
    assert limited is None


def test_a_claim_that_was_not_requested_yet_is_no_problem_and_nothing_is_released() -> None:
    pod = database(block("data", "podvolume", readBPS=1))
    shown = {pod.pod.cgroup: {BLOCK_READ_BPS: {"8:0": 5}}}
    decided, _ = decide(node_snapshot(pod), LAYOUT, Disks(DEVICES, "/var/lib/kubelet", shown), NOTHING)
    assert decided.problems == ()
    assert values(decided, pod.pod.cgroup) == {}


def test_a_pod_without_a_class_is_left_alone() -> None:
    pod = pod_usage("web", "", annotations={"koordinator.sh/blkioQOS": json.dumps({"blocks": [block(readBPS=1)]})})
    assert values(decision(node_snapshot(pod), limited=None), pod.pod.cgroup) == {}


def test_nothing_is_decided_before_the_disks_are_known() -> None:
    before = Disks(None, "/var/lib/kubelet")
    decided, limited = decide(node_snapshot(beClass=[block(readBPS=1)]), LAYOUT, before, None)
    assert decided.settings is None
    assert limited is None


BE_PATH = "resourceQOSStrategy.beClass.blkioQOS.blocks[0]"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (block(type_="tape"), f"{BE_PATH}.type: 'tape', allowed: device, volumegroup, podvolume"),
        (block("/dev/x"), f"{BE_PATH}.name: the device '/dev/x' is on no disk of this node, or on more than one"),
        (block("data", "podvolume"), f"{BE_PATH}.type: 'podvolume' is allowed in the annotation of a pod alone"),
    ],
)
def test_a_block_that_cannot_be_used_is_named(wrong: dict[str, Any], text: str) -> None:
    decided = decision(node_snapshot(beClass=[wrong, block("/dev/sdb", readBPS=1)]))
    assert texts(decided) == [text]
    assert values(decided)[BLOCK_READ_BPS, "8:16"] == 1


@pytest.mark.parametrize(
    ("wrong", "part"),
    [
        (block("none", "podvolume"), "the pod has no volume 'none'"),
        (block("unbound", "podvolume"), "the claim shop/new of the volume 'unbound' is not bound"),
        (block("temporary", "podvolume"), "'temporary' is neither of a claim nor of a CSI driver"),
        (block(readBPS=-1), "ReadBPS must be 0 or greater"),
        (block(ioWeightPercent=101), "IOWeightPercent must be 100 or less"),
    ],
)
def test_an_annotation_that_cannot_be_followed_is_told_to_its_pod(wrong: dict[str, Any], part: str) -> None:
    decided = decision(node_snapshot(database(wrong)))
    (problem,) = decided.problems
    assert part in problem.text
    assert problem.pod is not None


def test_an_annotation_that_is_no_json_changes_nothing() -> None:
    pod = database(text="{blocks")
    decided = decision(node_snapshot(pod), {pod.pod.cgroup: {BLOCK_READ_BPS: {"8:0": 5}}})
    assert values(decided, pod.pod.cgroup) == {}
    assert len(decided.problems) == 1


def test_two_blocks_on_one_disk_are_named() -> None:
    decided = decision(node_snapshot(beClass=[block(readBPS=1), block("/dev/sda1", readBPS=2)]))
    assert values(decided)[BLOCK_READ_BPS, "8:0"] == 1
    assert "'/dev/sda1' is on the disk 8:0, which blocks[0] is on, too" in texts(decided)[0]


@pytest.mark.parametrize("config", [{"readLatency": -1}, {"enableUserModel": True, "modelReadBPS": 1}])
def test_what_the_kernel_has_no_meaning_for_is_named(config: dict[str, Any]) -> None:
    decided = decision(node_snapshot(cgroupRoot=[block(**config)]))
    assert len(decided.problems) == 1
    assert values(decided, ROOT) == {}


def test_classes_that_cannot_be_limited_are_named() -> None:
    assert len(texts(decision(node_snapshot(lsClass=[block()], lsrClass=[block()])))) == 2


def test_the_claims_that_annotations_name() -> None:
    blocks = [block(name, "podvolume") for name in ("data", "cache", "scratch")]
    assert claims([database(*blocks).pod]) == {("shop", "data"), ("shop", "db-cache")}


LIMITS = st.fixed_dictionaries(
    {},
    optional={name: st.integers(0, 1 << 31) for name in ("readIOPS", "readBPS", "writeIOPS", "writeBPS")}
    | {"ioWeightPercent": st.integers(1, 100)},
)


@pytest.mark.parametrize("version", CgroupVersion)
@given(first=st.lists(LIMITS, max_size=2), second=st.lists(LIMITS, max_size=2))
def test_the_kernel_has_what_was_said_last(
    version: CgroupVersion, first: list[dict[str, Any]], second: list[dict[str, Any]]
) -> None:
    kernel = FakeKernel(version)
    for file in neutral(BEST_EFFORT):
        kernel.add(Target(file, BEST_EFFORT), None)
    executor = kernel.executor(ManualClock())
    for configs in (first, second):
        blocks = [block(name, **config) for name, config in zip(("/dev/sda", "/dev/sdb"), configs, strict=False)]
        shown = {BEST_EFFORT: {file: executor.present_devices(file, BEST_EFFORT) for file in neutral(BEST_EFFORT)}}
        settings = decision(node_snapshot(beClass=blocks), shown).settings
        assert settings is not None
        executor.submit("BlkIOReconcile", settings)
        executor.apply()
    names = {BLOCK_READ_IOPS: "readIOPS", BLOCK_READ_BPS: "readBPS", BLOCK_WRITE_IOPS: "writeIOPS"}
    for number, device in enumerate(("8:0", "8:16")):
        config = second[number] if number < len(second) else {}
        for file, name in names.items():
            assert kernel.value(Target(file, BEST_EFFORT, device)) == config.get(name, 0)
        assert kernel.value(Target(BLOCK_WEIGHT, BEST_EFFORT, device)) == config.get("ioWeightPercent", 100)


@pytest.mark.parametrize(("iops", "text"), [((1 << 32) - 2, "8:0 4294967294"), ((1 << 32) - 1, ""), (1 << 40, "")])
def test_more_operations_than_the_kernel_can_count_are_no_limit(iops: int, text: str) -> None:
    kernel = FakeKernel(CgroupVersion.V1)
    path = kernel.add(Target(BLOCK_READ_IOPS, BEST_EFFORT), None)
    executor = kernel.executor(ManualClock())
    executor.submit("BlkIOReconcile", decision(node_snapshot(beClass=[block(readIOPS=iops)])).settings or ())
    executor.apply()
    assert kernel.contents[path].strip() == text


def test_a_line_that_the_kernel_shows_with_more_words_is_not_written_again() -> None:
    kernel = FakeKernel(CgroupVersion.V2)
    for file in neutral(ROOT):
        kernel.add(Target(file), None)
    path = kernel.codec.path(Target(BLOCK_COST_QOS))
    assert path == "/sys/fs/cgroup/io.cost.qos"
    shown = "8:0 enable=1 ctrl=user rpct=95.00 rlat=3000 wpct=95.00 wlat=3000 min=1.00 max=10000.00\n"
    kernel.contents[path] = shown
    executor = kernel.executor(ManualClock())
    executor.submit("BlkIOReconcile", decision(node_snapshot(cgroupRoot=[block()])).settings or ())
    executor.apply()
    explanation = executor.explain(Target(BLOCK_COST_QOS, ROOT, "8:0"))
    assert explanation is not None
    assert explanation.outcome is Outcome.THERE_ALREADY
    assert kernel.contents[path] == shown
