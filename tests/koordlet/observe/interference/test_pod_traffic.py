"""What is measured of the network of pods: out of the files of the kernel, and of its answers."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from koordinator.api.labels import QOS_CLASS
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod, PodSpec
from koordinator.koordlet.observe.interference.detection import Indicator
from koordinator.koordlet.observe.interference.pod_traffic import PodTraffic, Traffic, compare
from koordinator.koordlet.pods.node_pod import NodePod, PodContainer
from koordinator.node import host as host_module
from koordinator.node.cgroup_layout import CgroupVersion
from koordinator.node.cgroup_reader import CgroupReader
from koordinator.node.connection_delays import delay_of, is_loopback
from koordinator.node.errors import OddRowError, Unavailable
from koordinator.node.host import Host
from koordinator.node.network_counters import NetworkCounters, read_network_counters
from tests.node.machine import FakeMachine

BEFORE = NetworkCounters(received=900, sent=100, packets=100, dropped=0, segments=1_000, retransmitted=10)
_DEVICE = "  eth0: {received} {packets} 0 {dropped} 0 0 0 0 {sent} {packets} 0 0 0 0 0 0\n"


def show(machine: FakeMachine, process: int, *, sent: int, again: int, packets: int = 0, dropped: int = 0) -> None:
    names = "RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens OutSegs RetransSegs"
    machine.write(f"/proc/{process}/net/snmp", f"Ip: A B\nIp: 1 2\nTcp: {names}\nTcp: 1 2 3 -1 5 {sent} {again}\n")
    header = "Inter-| Receive | Transmit\n face |bytes packets\n"
    loopback = "    lo: 7 7 0 7 0 0 0 0 7 7 0 7 0 0 0 0\n"
    device = _DEVICE.format(received=100 * packets, sent=50 * packets, packets=packets, dropped=dropped)
    machine.write(f"/proc/{process}/net/dev", header + loopback + device)


def node_pod(name: str, qos: str = "LS", *, host_network: bool = False) -> NodePod:
    metadata = ObjectMeta(name=name, namespace="shop", uid=f"uid-{name}", labels={QOS_CLASS: qos})
    containers = (PodContainer("main", f"containerd://{name}", f"{name}/c"),)
    pod = Pod(metadata=metadata, spec=PodSpec(host_network=host_network))
    return NodePod(pod, metadata.uid, name, containers, sandbox=f"{name}/pause")


class Measured:
    """``web`` and what is measured of it; process 7 is its sandbox, 8 its container."""

    def __init__(self, root: Path, delays: Mapping[int, float] | Unavailable | None = None) -> None:
        self.machine = FakeMachine(root)
        self.machine.write("/sys/fs/cgroup/web/pause/cgroup.procs", "7\n")
        self.machine.write("/sys/fs/cgroup/web/c/cgroup.procs", "8\n9\n")
        self.odd_rows: list[OddRowError] = []
        self.asked: list[int] = []
        self._given = delays
        reader = CgroupReader(self.machine.layout(CgroupVersion.V2), 4096)
        self.traffic = PodTraffic(self.machine.host, reader, None if delays is None else self._delays)
        self._now = 0.0

    async def _delays(self, _: Host, processes: Iterable[int], seconds: float) -> Mapping[int, float] | Unavailable:
        self.asked = list(processes)
        assert self._given is not None
        return self._given

    def round(self, *pods: NodePod) -> dict[str, Traffic]:
        self._now += 10
        return asyncio.run(self.traffic.measure(pods or (node_pod("web"),), self._now, self.odd_rows))


@pytest.fixture
def measured(tmp_path: Path) -> Measured:
    return Measured(tmp_path)


def test_the_counters_of_a_namespace_without_its_loopback(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    show(machine, 7, sent=1_000, again=20, packets=300, dropped=3)
    odd_rows: list[OddRowError] = []
    counted = read_network_counters(machine.host, 7, odd_rows.append)
    assert odd_rows == []
    assert counted == NetworkCounters(
        received=30_000, sent=15_000, packets=600, dropped=3, segments=1_000, retransmitted=20
    )


def test_shares_are_those_of_the_round(measured: Measured) -> None:
    show(measured.machine, 7, sent=5_000, again=900, packets=100, dropped=50)
    assert measured.round() == {}, "one round is no reading"
    show(measured.machine, 7, sent=5_900, again=1_000, packets=1_000, dropped=150)
    found = measured.round()["uid-web"]
    assert (found.sent, found.useful) == (4_500, 9_000 + 4_500 * 0.9)
    assert found.indicators == {Indicator.RETRANSMITS: 10.0, Indicator.DROPS: pytest.approx(100 * 100 / 1_900)}


def test_few_segments_say_nothing() -> None:
    after = NetworkCounters(received=1_300, sent=200, packets=199, dropped=0, segments=1_080, retransmitted=29)
    assert compare(BEFORE, after, 10.0) == Traffic(sent=10.0, useful=40 + 10 * (80 / 99))


def test_a_namespace_that_began_anew_is_no_reading() -> None:
    assert compare(BEFORE, NetworkCounters(5_000, 5_000, 5_000, 0, 500, 0), 10.0) is None


def test_without_a_sandbox_it_is_a_container(measured: Measured) -> None:
    for total in (1_000, 2_000):
        measured.machine.write("/sys/fs/cgroup/web/pause/cgroup.procs", "")
        show(measured.machine, 8, sent=total, again=0)
        found = measured.round()
    assert found["uid-web"].indicators == {Indicator.RETRANSMITS: 0.0}


def test_a_pod_in_the_network_of_the_node_is_named_once(measured: Measured, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    show(measured.machine, 7, sent=1_000, again=0)
    for _ in range(3):
        assert measured.round(node_pod("web", host_network=True)) == {}
    assert caplog.messages == ["pod shop/web is in the network of the node, its traffic is not measured"]


def test_an_odd_device_is_left_out(measured: Measured) -> None:
    show(measured.machine, 7, sent=1_000, again=0)
    path = measured.machine.root / "proc/7/net/dev"
    path.write_text(path.read_text() + "  eth1: 1 2\n")
    measured.round()
    assert [row.path for row in measured.odd_rows] == [str(path)]


def test_delays_are_asked_for_sensitive_pods_alone(tmp_path: Path) -> None:
    measured = Measured(tmp_path, {7: 12.5})
    measured.machine.write("/sys/fs/cgroup/job/pause/cgroup.procs", "17\n")
    for _ in range(2):
        for process in (7, 17):
            show(measured.machine, process, sent=1_000, again=0)
        found = measured.round(node_pod("web"), node_pod("job", "BE"))
    assert measured.asked == [7]
    assert {uid: each.indicators for uid, each in found.items()} == {
        "uid-web": {Indicator.DELAY: 12.5},
        "uid-job": {},
    }


def test_why_there_are_no_delays_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    measured = Measured(tmp_path, Unavailable("sock_diag: no such file", "a kernel with it"))
    show(measured.machine, 7, sent=1_000, again=0)
    for _ in range(3):
        measured.round()
    assert [each for each in caplog.messages if "delay of connections" in each] == [
        "the delay of connections is not measured: sock_diag: no such file; it needs a kernel with it"
    ]


def test_a_hundred_pods_are_three_files_each(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [node_pod(f"pod-{number}") for number in range(100)]
    for number, pod in enumerate(pods):
        measured.machine.write(f"/sys/fs/cgroup/{pod.sandbox}/cgroup.procs", f"{100 + number}\n")
        show(measured.machine, 100 + number, sent=1_000, again=0)
    opened: list[str] = []
    real = host_module.read_file

    def read(path: str, *limit: int) -> bytes:
        opened.append(path)
        return real(path, *limit)

    for module in ("cgroup_reader", "network_counters"):
        monkeypatch.setattr(f"koordinator.node.{module}.read_file", read)
    measured.round(*pods)
    assert len(opened) == 3 * len(pods)


def connection(
    *, rtt: int, least: int, last_sent: int, destination: bytes = bytes([10, 0, 0, 2]), size: int = 152
) -> bytes:
    """struct inet_diag_msg with an attribute of another kind and struct tcp_info."""
    head = bytes(24) + destination.ljust(16, b"\0") + bytes(32)
    info = bytearray(size)
    for offset, value in ((44, last_sent), (68, rtt), (148, least)):
        if offset + 4 <= size:
            struct.pack_into("=I", info, offset, value)
    return head + struct.pack("=HHB3x", 5, 8, 1) + struct.pack("=HH", 4 + size, 2) + bytes(info)


@pytest.mark.parametrize(
    ("message", "delay"),
    [
        (connection(rtt=5_500, least=500, last_sent=3), 5.0),
        (connection(rtt=400, least=500, last_sent=3), 0.0),
        (connection(rtt=5_500, least=500, last_sent=10_001), None),
        (connection(rtt=5_500, least=0xFFFFFFFF, last_sent=3), None),
        (connection(rtt=5_500, least=0, last_sent=3, size=104), None),
        (connection(rtt=5_500, least=500, last_sent=3, destination=bytes([127, 0, 0, 1])), None),
        (b"", None),
    ],
    ids=["queued", "shorter than before", "idle", "never measured", "an old kernel", "loopback", "nothing"],
)
def test_the_delay_of_a_connection(message: bytes, delay: float | None) -> None:
    assert delay_of(message, 10.0) == delay


@pytest.mark.parametrize(
    ("address", "is_local"),
    [
        (bytes([127, 0, 0, 53]) + bytes(12), True),
        (bytes(15) + b"\1", True),
        (bytes(10) + b"\xff\xff" + bytes([127, 0, 0, 1]), True),
        (bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1]), False),
        (bytes([0xFE, 0x80]) + bytes(13) + b"\1", False),
        (bytes([127, 1]) + bytes(13) + b"\1", False),
    ],
)
def test_what_is_the_loopback(address: bytes, *, is_local: bool) -> None:
    assert is_loopback(address) is is_local
