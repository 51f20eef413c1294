"""A network namespace like that of a node: eth0 with the default route, and pods' addresses from which one can send."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

GATEWAY = "10.99.0.1"
_PORT = 9
_CLASS = re.compile(
    r"class htb (?P<handle>\S+) (root|parent (?P<parent>\S+)) (leaf \S+ )?(prio (?P<priority>\d+) )?"
    r"rate (?P<rate>\S+) ceil (?P<ceil>\S+) .*\n Sent \d+ bytes (?P<packets>\d+) pkt"
)
_SEND = """
import socket, sys
port, packets, size = map(int, sys.argv[2:5])
senders = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in sys.argv[5:]]
for sender, source in zip(senders, sys.argv[5:]):
    # SO_SNDBUFFORCE: all packets are in the kernel's queue at once.
    sender.setsockopt(socket.SOL_SOCKET, 32, 8 << 20)
    sender.bind((source, 0))
for _ in range(packets):
    for sender in senders:
        sender.sendto(bytes(size), (sys.argv[1], port))
"""


def missing() -> str:
    """Why there can be no such namespace here; empty if there can."""
    if os.geteuid() != 0:
        return "needs root"
    if lacking := [program for program in ("ip", "tc") if shutil.which(program) is None]:
        return f"needs {' and '.join(lacking)}"
    if find_spec("pyroute2") is None:
        return "needs pyroute2 (pip install 'koordinator[network]')"
    probe = f"koord-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"ip netns add: {made.stderr.strip()}"
    try:
        for line, reason in (
            ("ip link add eth0 type veth peer name peer0", "the kernel makes no veth devices"),
            ("tc qdisc add dev eth0 root handle 1: htb", "the kernel has no HTB"),
        ):
            command = ["ip", "netns", "exec", probe, *line.split()]
            if subprocess.run(command, capture_output=True, check=False).returncode != 0:
                return reason
    finally:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return ""


@dataclass(frozen=True)
class ShownClass:
    """What iproute2 shows of a class of HTB; ``packets`` that it has sent."""

    parent: str
    rate: str
    ceil: str
    priority: str
    packets: int


def _class(match: re.Match[str]) -> ShownClass:
    parent, priority = match["parent"] or "", match["priority"] or ""
    return ShownClass(parent, match["rate"], match["ceil"], priority, int(match["packets"]))


class NodeNetwork:
    """Run programs in it with ``run``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def run(self, *command: str) -> str:
        """stdout; AssertionError, with stderr in it, if the program fails."""
        done = subprocess.run([*self.enter, *command], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def add_address(self, address: str) -> None:
        """One from which packets can be sent, as from a pod."""
        self.run("ip", "address", "add", f"{address}/32", "dev", "lo")

    def send(self, *sources: str, packets: int = 5, size: int = 1000) -> None:
        """To the gateway, which takes whatever comes; from all sources in turn."""
        self.run(sys.executable, "-c", _SEND, GATEWAY, str(_PORT), str(packets), str(size), *sources)

    def classes(self, device: str = "eth0") -> dict[str, ShownClass]:
        """As iproute2 shows them, by their handle."""
        listed = self.run("tc", "-s", "class", "show", "dev", device)
        return {match["handle"]: _class(match) for match in _CLASS.finditer(listed)}

    def root(self, device: str = "eth0") -> str:
        """The kind of the device's root qdisc."""
        listed = json.loads(self.run("tc", "-j", "qdisc", "show", "dev", device))
        kind: str = next(each["kind"] for each in listed if each.get("root"))
        return kind

    def rules(self) -> list[str]:
        """Of iptables."""
        lines = self.run("iptables", "-w", "-t", "mangle", "-S", "POSTROUTING").splitlines()
        return [line for line in lines if line.startswith("-A")]

    @property
    def enter(self) -> tuple[str, ...]:
        """What is to be put before a command so that it runs here."""
        return "ip", "netns", "exec", self._name

    @contextmanager
    def reach(self, *ports: int) -> Iterator[None]:
        """These ports of the loopback of the machine are those of the namespace's meanwhile."""
        command = [sys.executable, "-m", "tests.real.namespace_relay", self._name, *map(str, ports)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "listening\n"
                yield
            finally:
                process.kill()

    @contextmanager
    def rounds(self) -> Iterator[Rounds]:
        """koordlet's part, as a process that starts here."""
        command = [*self.enter, sys.executable, "-m", "tests.real.network_rounds"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield Rounds(process)
            finally:
                assert process.stdin is not None
                process.stdin.close()
                process.wait(60)


class Rounds:
    """Call it for one round, or several."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.log: list[str] = []
        self.has_tree = False
        self.has_imported = False

    def __call__(self, slo: dict[str, Any], pods: Sequence[dict[str, Any]] | None = (), **given: Any) -> dict[str, int]:
        """The minor numbers of pods that have one of their own."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"enabled": True, "rounds": 1, "slo": slo, "pods": None if pods is None else list(pods), **given}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the rounds have ended, see stderr"
        response: dict[str, Any] = json.loads(line)
        self.log, self.has_tree, self.has_imported = response["log"], response["has_tree"], response["has_imported"]
        minors: dict[str, int] = response["minors"]
        return minors

    def descriptors(self) -> int:
        """How many files the process has open."""
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))


@contextmanager
def bare_network(name: str) -> Iterator[NodeNetwork]:
    """A fresh one with nothing but its loopback."""
    name = f"koord-{name}-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True, timeout=60)
    try:
        network = NodeNetwork(name)
        network.run("ip", "link", "set", "lo", "up")
        yield network
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True, timeout=60)


def link(one: NodeNetwork, name: str, address: str, other: NodeNetwork, other_name: str, other_address: str) -> None:
    """A cable between two of them, from device to device."""
    one.run("ip", "link", "add", name, "type", "veth", "peer", "name", other_name, "netns", other.enter[-1])
    for network, device, given in ((one, name, address), (other, other_name, other_address)):
        network.run("ip", "address", "add", given, "dev", device)
        network.run("ip", "link", "set", device, "up")


@contextmanager
def node_network(name: str = "node") -> Iterator[NodeNetwork]:
    """A fresh one, with a way out."""
    with bare_network(name) as network:
        for line in (
            "ip link add eth0 type veth peer name peer0",
            "ip address add 10.99.0.2/24 dev eth0",
            "ip link set eth0 up",
            "ip link set peer0 up",
            f"ip route add default via {GATEWAY}",
        ):
            network.run(*line.split())
        peer = json.loads(network.run("ip", "-j", "link", "show", "peer0"))[0]["address"]
        network.run(*f"ip neighbour add {GATEWAY} lladdr {peer} dev eth0".split())
        yield network
