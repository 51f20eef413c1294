"""What the kernel of this machine counts of connections in a network namespace, read from outside of it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from koordinator.koordlet.observe.interference.detection import Indicator
from koordinator.koordlet.observe.interference.pod_traffic import Traffic, compare
from koordinator.node.connection_delays import probe, read_delays
from koordinator.node.errors import OddRowError, Unavailable
from koordinator.node.host import Host
from koordinator.node.network_counters import read_network_counters
from tests.real.network_namespace import NodeNetwork, bare_network, link, missing

_PEER = "10.97.0.1"
_DISCARD = """
import socket, sys
server = socket.create_server((sys.argv[1], 9))
print("listens", flush=True)
connection, _ = server.accept()
while connection.recv(65536): pass
"""
_SEND = """
import socket, sys
connection = socket.create_connection((sys.argv[1], 9))
print("connected", flush=True)
# For each line, so many bytes, and a line when the peer has them all.
for line in sys.stdin:
    connection.sendall(bytes(int(line)))
    while connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)[24:28] != bytes(4): pass
    print("sent", flush=True)
"""


class Sender:
    """In a network of its own, with a connection to a peer."""

    def __init__(self, network: NodeNetwork, running: ExitStack) -> None:
        self.network = network
        command = [*network.enter, sys.executable, "-c", _SEND, _PEER]
        started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._process = running.enter_context(started)
        running.callback(self._process.kill)
        # Before that it may not have entered the namespace yet.
        assert started.stdout is not None
        assert started.stdout.readline() == "connected\n"

    def send(self, size: int) -> Traffic:
        """What is read of so many bytes, until all of them have arrived."""
        odd_rows: list[OddRowError] = []
        given = Host(), self._process.pid, odd_rows.append
        before = read_network_counters(*given)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{size}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "sent\n"
        traffic = compare(before, read_network_counters(*given), 1.0)
        assert traffic is not None
        assert odd_rows == []
        return traffic

    def delay(self) -> float:
        """Milliseconds."""
        found = asyncio.run(read_delays(Host(), [self._process.pid, os.getpid()], 10.0))
        assert not isinstance(found, Unavailable), found
        return found[self._process.pid]


@pytest.fixture
def sender() -> Iterator[Sender]:
    if reason := missing():
        pytest.skip(reason)
    with ExitStack() as running:
        pod, peer = (running.enter_context(bare_network(name)) for name in ("traffic-pod", "traffic-peer"))
        link(pod, "eth0", "10.97.0.2/24", peer, "eth0", f"{_PEER}/24")
        command = [*peer.enter, sys.executable, "-c", _DISCARD, _PEER]
        server = running.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        running.callback(server.kill)
        assert server.stdout is not None
        assert server.stdout.readline() == "listens\n"
        yield Sender(pod, running)


def test_this_kernel_answers() -> None:
    assert probe() is None


def test_a_queue_that_is_full_shows_in_delay_and_in_what_is_sent_again(sender: Sender) -> None:
    calm = sender.send(1_000_000)
    before = sender.delay()
    shape = "tc qdisc add dev eth0 root tbf rate 8mbit burst 10kb limit 60kb"
    sender.network.run(*shape.split())
    full = sender.send(1_000_000)
    # It becomes shorter again while the last segments leave the queue.
    assert sender.delay() > before + 1.0
    assert calm.indicators[Indicator.RETRANSMITS] == 0.0
    assert full.indicators[Indicator.RETRANSMITS] > 0.5
    assert 1_000_000 < calm.sent < 1_200_000
    assert full.useful < full.sent


def test_the_thread_that_asks_is_in_its_own_namespace_again(sender: Sender) -> None:
    own = os.readlink("/proc/self/ns/net")
    sender.send(10_000)
    assert sender.delay() >= 0.0
    assert {os.readlink(f"/proc/self/task/{task}/ns/net") for task in os.listdir("/proc/self/task")} == {own}
