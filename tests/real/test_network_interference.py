"""On a real node, koordlet names the pod that fills a queue of the network, caps it, and says what that has brought.

The pods are in network namespaces of their own, and so is koordlet, with the way out that a node has:

    web, miner -- node (koordlet, eth0) -- switch, whose port to the peer has 30 Mbit/s -- peer

The switch is beyond what TCNetworkQoS shares out, so that the classes of the node alone help nobody.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from koordinator.cli.main import main
from tests.free_ports import free_ports
from tests.real.network_namespace import NodeNetwork, ShownClass, bare_network, link, missing
from tests.real.node_pods import pod_document
from tests.real.polling import until
from tests.real.real_node import EnforcedNode, real_node
from tests.real.test_interference import counts_rounds

_NAMESPACE = "network-interference-test"
_NODE = "network-interference-node"
_KUBELET = 10250
_PEER = "10.99.1.1"
_WORKLOAD = r"""
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
/* workload ADDRESS: eight connections, on each 600 bytes every 20 ms.
   workload ADDRESS FILE: datagrams, of 33 Mbit/s while there is FILE. */
static struct sockaddr_in peer = {.sin_family = AF_INET};
static char bytes[1400];
static void stop(int s) { _exit(0); }
static void rest(long long *next, long long ns) {
  struct timespec t;
  *next += ns;
  t.tv_sec = *next / 1000000000; t.tv_nsec = *next % 1000000000;
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0);
}
static int opened(void) {
  int one = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  connect(s, (struct sockaddr *)&peer, sizeof peer);
  return s;
}
int main(int argc, char **argv) {
  struct timespec t;
  signal(SIGTERM, stop); signal(SIGPIPE, SIG_IGN);
  clock_gettime(CLOCK_MONOTONIC, &t);
  long long next = t.tv_sec * 1000000000LL + t.tv_nsec;
  inet_pton(AF_INET, argv[1], &peer.sin_addr);
  peer.sin_port = htons(9);
  if (argc > 2) {
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    for (;; rest(&next, 4000000))
      for (int i = 0; i < (access(argv[2], F_OK) ? 0 : 12); i++) sendto(s, bytes, 1400, 0, (void *)&peer, sizeof peer);
  }
  int s[8];
  for (int i = 0; i < 8; i++) s[i] = opened();
  for (;; rest(&next, 20000000))
    for (int i = 0; i < 8; i++)
      if (send(s[i], bytes, 600, 0) < 0 && errno != EAGAIN && errno != EINPROGRESS) { close(s[i]); s[i] = opened(); }
}
"""
_DISCARD = """
import asyncio
async def discard(reader, writer):
    while await reader.read(65536): pass
async def serve():
    await (await asyncio.start_server(discard, "10.99.1.1", 9)).serve_forever()
asyncio.run(serve())
"""
_GATES = "--feature-gates=InterferenceDetection=true,TCNetworkQoS=true"
_FAST = (
    "--interference-interval=1s",
    "--runtime-hooks-reconcile-interval=1s",
    "--enable-nri-runtime-hook=false",
    "--kubelet-sync-interval=2s",
)
_SPEC = {
    "systemStrategy": {"totalNetworkBandwidth": "800M"},
    "resourceQOSStrategy": {
        "lsClass": {"networkQOS": {"enable": True, "egressRequest": 40, "egressLimit": 100}},
        "beClass": {"networkQOS": {"enable": True, "egressRequest": 10, "egressLimit": 100}},
    },
    "extensions": {
        "Object": {"interference": {"suppress": True, "windowSeconds": 10, "capSeconds": 10, "confidencePercent": 30}}
    },
}
_LEARNED = 40
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the pods' program, and the file that starts the antagonist."""
    if reason := missing():
        pytest.skip(reason)
    made = tmp_path_factory.mktemp("shared")
    source = made / "workload.c"
    source.write_text(_WORKLOAD)
    subprocess.run(["gcc", "-O1", "-static", "-o", str(made / "workload"), str(source)], check=True)
    return made


@pytest.fixture(scope="module")
def networks(folder: Path) -> Iterator[dict[str, NodeNetwork]]:
    """The node's, the switch's and the peer's, which discards what it gets."""
    with ExitStack() as undone:
        made = {name: undone.enter_context(bare_network(name)) for name in ("node", "switch", "peer")}
        node, switch, peer = made.values()
        link(node, "eth0", "10.99.0.2/24", switch, "s0", "10.99.0.1/24")
        link(switch, "s1", "10.99.1.2/24", peer, "eth0", f"{_PEER}/24")
        for network in (node, switch):
            network.run("sysctl", "--quiet", "--write", "net.ipv4.ip_forward=1")
        for network, line in (
            (node, "ip route add default via 10.99.0.1"),
            (switch, "ip route add 10.244.0.0/16 via 10.99.0.2"),
            (peer, "ip route add default via 10.99.1.2"),
            (switch, "tc qdisc add dev s1 root tbf rate 30mbit burst 10kb limit 150kb"),
        ):
            network.run(*line.split())
        server = subprocess.Popen([*peer.enter, sys.executable, "-c", _DISCARD])
        undone.callback(server.wait)
        undone.callback(server.kill)
        yield made


@pytest.fixture(scope="module")
def node(
    real_cluster: Path, folder: Path, networks: dict[str, NodeNetwork], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EnforcedNode]:
    """With the two pods in its network, and a NodeSLO that has its bandwidth shared out and suspects held back."""
    files = tmp_path_factory.mktemp("node")
    _give_addresses(files)
    with real_node(real_cluster, files, _NODE, _NAMESPACE) as made:
        for kind, spec in (
            ("NodeMetric", {"metricCollectPolicy": {"reportIntervalSeconds": 2, "aggregateDurationSeconds": 10}}),
            ("NodeSLO", _SPEC),
        ):
            header = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": kind, "metadata": {"name": made.name}}
            made.apply({**header, "spec": spec})
        for number, (name, qos, arguments) in enumerate(
            (("web", "LS", [_PEER]), ("miner", "BE", [_PEER, "/shared/go"]))
        ):
            running = made.run_pod(_pod(name, qos, folder, {"cpu": "100m"} if qos == "LS" else {}, arguments))
            _connect(networks["node"], folder, running["status"]["podIP"], arguments, f"pod{number}")
        yield made


def _give_addresses(files: Path) -> None:
    """The first file by name counts."""
    conf = files / "cni/conf"
    conf.mkdir(parents=True)
    addresses = {"type": "host-local", "dataDir": str(files / "addresses"), "subnet": "10.244.78.0/24"}
    document = {"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": addresses}]}
    (conf / "05-pods.conflist").write_text(json.dumps(document))


def _pod(name: str, qos: str, folder: Path, requests: dict[str, str], arguments: list[str]) -> dict[str, Any]:
    container = {
        "command": ["/shared/workload", *arguments],
        "resources": {"requests": requests},
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
    }
    document = pod_document(_NODE, _NAMESPACE, name, container, {"koordinator.sh/qosClass": qos})
    document["spec"] |= {"hostNetwork": False, "volumes": [{"name": "shared", "hostPath": {"path": str(folder)}}]}
    return document


def _connect(network: NodeNetwork, folder: Path, address: str, arguments: list[str], device: str) -> None:
    """A pod to the network of the node, instead of that of the machine; with the address that it has."""
    command = [b"/shared/workload", *map(str.encode, arguments)]
    process = next(
        each.parent.name
        for each in Path("/proc").glob("[0-9]*/cmdline")
        if each.read_bytes().split(b"\0")[:-1] == command
    )
    enter = ["nsenter", f"--net=/proc/{process}/ns/net"]
    for line in (
        "ip link del eth0",
        f"ip link add eth0 type veth peer name {device} netns {network.enter[-1]}",
        f"ip address add {address}/32 dev eth0",
        "ip link set eth0 up",
        "ip route add 169.254.1.1 dev eth0",
        f"ip route add default via 169.254.1.1 src {address}",
    ):
        subprocess.run([*enter, *line.split()], check=True)
    network.run("ip", "address", "add", "169.254.1.1/32", "dev", device)
    network.run("ip", "link", "set", device, "up")
    network.run("ip", "route", "add", f"{address}/32", "dev", device)


def _notes(node: EnforcedNode, pod: str, reason: str) -> list[str]:
    """What events say of the pod."""
    events = node.get("events", namespace=_NAMESPACE)["items"]
    return [each["message"] for each in events if (each["involvedObject"]["name"], each["reason"]) == (pod, reason)]


def _remedies(node: EnforcedNode) -> list[dict[str, Any]]:
    """Those that have been tried for the online pod, as the NodeMetric has them."""
    pods = node.get("nodemetrics", node.name).get("status", {}).get("podsMetric", [])
    web = [pod for pod in pods if pod["name"] == "web"]
    return [each for pod in web for each in pod.get("extensions", {}).get("Object", {}).get("interferenceRemedies", [])]


class _Agent:
    """A koordlet in the network of the node, which takes a reading every second."""

    def __init__(self, node: EnforcedNode, network: NodeNetwork, folder: Path) -> None:
        folder.mkdir()
        self.log = folder / "log"
        self._network = network
        (self._port,) = free_ports(1)
        # `ip netns exec` would hide the cgroups, with a /sys of its own.
        enter = ["nsenter", f"--net=/run/netns/{network.enter[-1]}"]
        command = [*enter, *node.koordlet_command(folder), f"--addr=127.0.0.1:{self._port}", _GATES, *_FAST]
        with self.log.open("ab") as stderr:
            self._process = subprocess.Popen(command, env={**os.environ, **node.koordlet_environment}, stderr=stderr)

    def rounds(self) -> float:
        """How often pods were compared with what is normal for them."""
        url = f"http://127.0.0.1:{self._port}/metrics"
        text = self._network.run("curl", "--silent", "--retry", "30", "--retry-connrefused", url)
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if counts_rounds(line))

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(15) == 0, self.log.read_text()


@dataclass(frozen=True)
class _Played:
    """The classes while the antagonist was held back, and after that; and what the NodeMetric said at the end."""

    capped: dict[str, ShownClass]
    released: dict[str, ShownClass]
    remedies: list[dict[str, Any]]


@pytest.fixture(scope="module")
def played(
    node: EnforcedNode, networks: dict[str, NodeNetwork], folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> _Played:
    network, file = networks["node"], folder / "go"
    server = yaml.safe_load(node.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    api = urlsplit(server).port
    assert api is not None
    with ExitStack() as running:
        running.enter_context(network.reach(api, _KUBELET))
        agent = _Agent(node, network, tmp_path_factory.mktemp("agent") / "files")
        running.callback(agent.stop)
        until(lambda: agent.rounds() >= _LEARNED, 180, "what is normal")
        file.touch()
        running.callback(file.unlink, missing_ok=True)
        until(lambda: _notes(node, "miner", "InterferenceRemedyHelps"), 120, "a cap that helps")
        capped = network.classes()
        file.unlink()
        until(lambda: _notes(node, "miner", "InterferenceRemedyReleased"), 120, "the end of the cap")
        until(lambda: network.classes().keys() < capped.keys(), 60, "the end of the class")
        until(lambda: any(each["result"] == "released" for each in _remedies(node)), 60, "a report of it")
        return _Played(capped, network.classes(), _remedies(node))


def test_an_event_of_the_victim_names_who_fills_the_queue(node: EnforcedNode, played: _Played) -> None:
    notes = _notes(node, "web", "InterferenceDetected")
    of_network = [note for note in notes if note.startswith(("tcp-retransmits is ", "network-delay is "))]
    assert any(f"suspect: BE pod {_NAMESPACE}/miner (correlation" in note for note in of_network)


def test_events_of_the_suspect_say_what_was_tried_and_what_it_has_brought(node: EnforcedNode, played: _Played) -> None:
    for reason, end in (("Tried", ""), ("Helps", " with it"), ("Released", "; taken back")):
        notes = _notes(node, "miner", f"InterferenceRemedy{reason}")
        assert notes
        for note in notes:
            assert note.startswith("cap (")
            assert f"since it disturbs {_NAMESPACE}/web" in note
            assert note.endswith(end)


def test_the_pod_has_a_class_of_half_of_what_it_sent_and_none_afterwards(played: _Played) -> None:
    (own,) = played.capped.keys() - {"1:1", "1:2", "1:3", "1:4"}
    assert 10_000 < _kilobits(played.capped[own].rate) < 22_000
    assert played.released.keys() == {"1:1", "1:2", "1:3", "1:4"}


def _kilobits(shown: str) -> int:
    number = int("".join(filter(str.isdigit, shown)))
    return number * {"Mbit": 1_000, "Kbit": 1}[shown[-4:]]


def test_the_node_metric_says_what_the_cap_has_brought(played: _Played) -> None:
    helped = [each for each in played.remedies if each["result"] == "released"]
    assert {(each["remedy"], each["suspect"]) for each in helped} == {("cap", f"{_NAMESPACE}/miner")}
    assert all(each["after"] < each["before"] / 2 for each in helped)


def test_the_explanation_says_when_and_why_it_acted(
    node: EnforcedNode, played: _Played, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "interference", node.name, f"--kubeconfig={node.kubeconfig}"]) == 0
    out = capsys.readouterr().out
    assert "What was done about it" in out
    assert f"{_NAMESPACE}/miner"[:10] in out
