"""The books of devices: whatever happens, each allocation counts once, and no device is given out twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.allocations import Unknown
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.plugins.device_share.allocation import allocation_annotation
from tests.examples import examples
from tests.scheduler.fakes import make_node
from tests.scheduler.plugins.device_share.machines import Machines, device, eight, gpu, make_device_pod, rdma

_CARDS = [rdma(minor, numa=minor, pcie=str(2 * minor), functions=2) for minor in range(2)]
DEVICES = [*eight(), *_CARDS]
REQUESTS: list[dict[str, Any]] = [
    {"gpu": 100},
    {"gpu": 200},
    {"gpu_core": 30, "gpu_memory_ratio": 30},
    {"gpu_memory": "5Gi"},
    {"gpu.shared": 2, "gpu_memory_ratio": 60},
    {"rdma": 40},
    {"gpu": 100, "rdma": 100},
]
_FUNCTION: dict[str, Any] = {"device-allocate-hint": {"rdma": {"vfSelector": {}}}}
_PARTITION: dict[str, Any] = {"gpu-partition-spec": {}}
_TOGETHER: dict[str, Any] = {"device-joint-allocate": {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}}
ANNOTATIONS: list[dict[str, Any]] = [{}, _PARTITION, {}, {}, {}, _FUNCTION, {**_TOGETHER, **_FUNCTION}]
_H100 = {"node.koordinator.sh/gpu-model": "H100"}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["place", "place", "forget", "confirm", "spoil", "delete", "node", "ill", "device", "simulate"]
        ),
        st.integers(0, 6),
    ),
    max_size=40,
)


def pod_of(number: int) -> Pod:
    return make_device_pod(f"p{number}", annotations=ANNOTATIONS[number], **REQUESTS[number])


def check(machines: Machines) -> None:
    """What is counted is the sum over the pods on the node, and no more than there is of any device that works."""
    sums: dict[int, Counter[tuple[str, int, str]]] = {}
    functions: Counter[tuple[int, str, str]] = Counter()
    for row, pods in machines.view.pods_on.items():
        for uid in pods:
            for kind, devices in machines.held(uid):
                for each in devices:
                    sums.setdefault(row, Counter()).update({(kind, each.minor, key): of for key, of in each.resources})
                    functions.update((row, kind, bus_id) for _, bus_id in each.vfs)
    unknown = {
        row: {uid for uid in pods if isinstance(machines.view.allocations.entry("DeviceShare", uid), Unknown)}
        for row, pods in machines.view.pods_on.items()
    }
    closing = {row: set(node.closed.of_holders) for row, node in machines.plugin.nodes.items() if node.closed}
    assert closing == {row: uids for row, uids in unknown.items() if uids}
    counted = {
        row: Counter(
            {
                (kind, minor, name): amount
                for kind, minors in node.used.items()
                for minor, amounts in minors.items()
                for name, amount in amounts.items()
            }
        )
        for row, node in machines.plugin.nodes.items()
    }
    assert {row: each for row, each in counted.items() if each} == sums
    assert max(functions.values(), default=1) == 1
    for row, of_row in sums.items():
        for (kind, minor, name), amount in of_row.items():
            whole = machines.plugin.nodes[row].total.get(kind, {}).get(minor)
            assert not whole or amount <= whole[name]


@settings(max_examples=examples(80), deadline=None)
@given(steps=STEPS)
def test_whatever_happens_each_allocation_counts_once_and_fits(steps: list[tuple[str, int]]) -> None:
    machines = Machines(device(*DEVICES), labels=_H100)
    placements: dict[int, Placement] = {}
    for step, number in steps:
        _take(machines, placements, step, number)
        check(machines)
    assert not machines.differences


def _take(machines: Machines, placements: dict[int, Placement], step: str, number: int) -> None:
    uid, placement = f"uid-p{number}", placements.get(number)
    match step:
        case "place" if machines.state.placed(uid) is None and machines.state.has_node("a"):
            result = machines.decide(pod_of(number))
            if isinstance(result, Placement) and machines.engine.assume(result) is None:
                placements[number] = result
        case "forget" if placement is not None:
            machines.engine.forget(placements.pop(number))
        case "confirm" if placement is not None and machines.state.confirmed_node(uid) == "":
            held = machines.held(uid)
            text = allocation_annotation(held) if held else ""
            machines.bound(pod_of(number), placement.node_name, devices=text)
        case "spoil" if placement is None or machines.state.confirmed_node(uid) != "":
            machines.bound(pod_of(number), "a", devices="{bad")
        case "delete":
            machines.state.remove_pod(uid)
        case "node" if machines.state.has_node("a"):
            machines.state.remove_node("a")
        case "node":
            machines.state.set_node(make_node("a"))
        case "ill":
            machines.set_device(device(*[{**each, "health": each["minor"] != number} for each in DEVICES]))
        case "device":
            machines.set_device(device(*DEVICES))
        case "simulate":
            with machines.engine.handle.simulate() as simulation:
                for pods in list(machines.view.pods_on.values()):
                    for pod in list(pods.values()):
                        simulation.remove(pod)
                assert not any(node.closed for node in machines.plugin.nodes.values())


def test_after_a_restart_what_pods_hold_is_read_from_annotations() -> None:
    machines = Machines(device(gpu(0), gpu(1)))
    text = '{"gpu":[{"minor":1,"resources":{"kubernetes.io/gpu-core":"100"}}]}'
    machines.bound(make_device_pod("p", gpu=100), devices=text)
    used = {minor: dict(amounts) for minor, amounts in machines.plugin.nodes[0].used.get("gpu", {}).items()}
    assert used == {1: {"koordinator.sh/gpu-core": 100}}


def test_a_record_that_cannot_be_read_closes_the_types_that_its_pod_requests() -> None:
    machines = Machines(device(*DEVICES))
    machines.bound(make_device_pod("p", gpu=100), devices="{")
    reason = "node(s) had gpu devices held by a pod whose allocation record cannot be read"
    assert reason in machines.message(make_device_pod("q", gpu=100))
    assert reason in machines.message(make_device_pod("q", gpu=100, rdma=100))
    assert machines.place(make_device_pod("r", rdma=40)).node_name == "a"


def test_a_pod_that_is_created_again_is_another_pod() -> None:
    machines = Machines(device(gpu(0), gpu(1)))
    text = '{"gpu":[{"minor":%d,"resources":{"koordinator.sh/gpu-core":"100"}}]}'
    machines.bound(make_device_pod("p", uid="old", gpu=100), devices=text % 0)
    machines.bound(make_device_pod("p", uid="new", gpu=100), devices=text % 1)
    machines.state.remove_pod("old")
    assert set(machines.plugin.nodes[0].used["gpu"]) == {1}


def test_a_confirmed_pod_keeps_the_allocation_that_it_was_given() -> None:
    machines = Machines(device(gpu(0), gpu(1)))
    machines.place(make_device_pod("p", gpu=100))
    before: Any = machines.held("uid-p")
    machines.bound(make_device_pod("p", gpu=100), devices=allocation_annotation(before))
    assert machines.held("uid-p") == before


def test_an_allocation_that_is_told_twice_counts_once() -> None:
    """As to an event handler that failed, and is told the present state again."""
    machines = Machines(device(gpu(0), gpu(1)))
    machines.place(make_device_pod("p", gpu=100))
    pod, held = machines.info(make_device_pod("p", gpu=100)), machines.held("uid-p")
    for _ in range(2):
        machines.plugin.on_allocated(0, pod, held)
    check(machines)
    for _ in range(2):
        machines.plugin.on_released(0, pod, held)
    assert machines.plugin.nodes[0].used == {}


def test_what_a_deleted_pod_had_closed_is_open_again() -> None:
    """Also where nodes that are alike are evaluated once: of so many."""
    names = [f"node-{number}" for number in range(40)]
    machines = Machines(*[device(gpu(0), node=name) for name in names])
    # It has no devices that would be counted.
    machines.state.remove_node("a")
    for name in names:
        machines.bound(make_device_pod(f"on-{name}", gpu=100), name, devices="{")
    closed = "40 node(s) had gpu devices held by a pod"
    assert closed in machines.message(make_device_pod("p", gpu_core=10, gpu_memory_ratio=10))
    machines.state.remove_pod("uid-on-node-7")
    assert machines.place(make_device_pod("q", gpu_core=20, gpu_memory_ratio=20)).node_name == "node-7"
