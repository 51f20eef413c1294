"""Network QoS of whole programs: our koordlet and the Go original, each in a network namespace of its own.

Of the same NodeSLO and pods they make the same, and ``koordlet --cleanup`` leaves nothing of what either has made.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from tests.free_ports import free_ports
from tests.node.machine import FakeMachine
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import prepare
from tests.real.network_namespace import NodeNetwork, missing, node_network
from tests.real.programs import RealPrograms
from tests.real.sandbox_node import OURS, koordlet, kubelet, log_of
from tests.real.test_koordlet_steps import pods, write_machine

SLO = "/apis/slo.koordinator.sh/v1alpha1"
NAMES = ("ours", "original")
NETWORK = {"enable": True, "ingressRequest": 0, "ingressLimit": 100}
SPEC: dict[str, Any] = {
    "systemStrategy": {"totalNetworkBandwidth": "800M"},
    "resourceQOSStrategy": {
        "policies": {"netQOSPolicy": "tc"},
        "lsClass": {"networkQOS": {**NETWORK, "egressRequest": 40, "egressLimit": 100}},
        "beClass": {"networkQOS": {**NETWORK, "egressRequest": "80M", "egressLimit": 25}},
    },
}
ADDRESSES = {"LS": "10.1.0.1", "BE": "10.1.0.2"}
SECONDS = 40.0


def with_addresses() -> list[dict[str, Any]]:
    """One LS pod and one BE pod of those of the other comparison."""
    chosen: dict[str, dict[str, Any]] = {}
    for pod in pods():
        qos = pod["metadata"]["labels"].get("koordinator.sh/qosClass", "")
        if qos in ADDRESSES and qos not in chosen:
            pod["status"]["podIP"] = ADDRESSES[qos]
            chosen[qos] = pod
    assert set(chosen) == set(ADDRESSES)
    return list(chosen.values())


class Nodes:
    """Two nodes that are folders, and their networks."""

    def __init__(self, plane: ControlPlane, folder: Path, networks: dict[str, NodeNetwork]) -> None:
        self.plane = plane
        self.networks = networks
        self.pods = with_addresses()
        self.programs: dict[str, subprocess.Popen[bytes]] = {}
        self.replace_by_cleanup: Callable[[str], int] = lambda _: 1
        """Kill the program of a node, and run ``koordlet --cleanup`` of ours there: its exit status."""
        self.machines = {name: FakeMachine(folder / name) for name in networks}
        for name, machine in self.machines.items():
            write_machine(machine, self.pods)
            amounts = {"cpu": "2", "memory": "16Gi", "pods": "10"}
            addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
            status = {"capacity": amounts, "allocatable": amounts, "addresses": addresses}
            self._must("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": status})
            document = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": name}}
            self._must("POST", f"{SLO}/nodeslos", {**document, "spec": SPEC})

    def _must(self, method: str, path: str, document: dict[str, Any]) -> None:
        code, response = self.plane.request(method, path, document)
        assert code in (200, 201), response.get("message")

    def change(self, spec: dict[str, Any]) -> None:
        """Merged into the NodeSLO of both."""
        for name in self.networks:
            self._must("PATCH", f"{SLO}/nodeslos/{name}", {"spec": spec})

    def log(self) -> str:
        """The end of what both say."""
        return "".join(log_of(machine).read_text(errors="replace")[-3000:] for machine in self.machines.values())

    def wait(self, condition: Callable[[], bool]) -> None:
        """Until it holds."""
        started = time.monotonic()
        while not condition():
            assert time.monotonic() - started < SECONDS, f"{[self.shown(name) for name in NAMES]}\n{self.log()}"
            time.sleep(0.25)

    def shown(self, name: str) -> dict[str, Any]:
        """The classes and the rules, as iproute2 and iptables show them."""
        network = self.networks[name]
        classes = {
            handle: (each.parent, each.rate, each.ceil, each.priority) for handle, each in network.classes().items()
        }
        return {"root": network.root(), "classes": classes, "rules": sorted(network.rules())}

    def are_alike(self) -> bool:
        ours, original = (self.shown(name) for name in NAMES)
        return ours == original

    def packets(self, name: str) -> dict[str, int]:
        """How many packets of three from each pod go through each class of pods."""
        network = self.networks[name]
        before = network.classes()
        for address in ADDRESSES.values():
            network.send(address, packets=3)
        return {handle: network.classes()[handle].packets - before[handle].packets for handle in ("1:3", "1:4")}


@pytest.fixture
def nodes(real_programs: RealPrograms, plane: ControlPlane, tmp_path: Path) -> Iterator[Nodes]:
    original = real_programs.original / "koordlet"
    if not original.is_file():
        pytest.skip(f"the original's koordlet is absent: put it into {real_programs.original}")
    if reason := missing() or ("" if shutil.which("iptables") else "needs iptables"):
        pytest.skip(reason)
    prepare(plane)
    api = urlsplit(yaml.safe_load(plane.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]).port
    assert api is not None
    with ExitStack() as running:
        networks = {name: running.enter_context(node_network(name)) for name in NAMES}
        made = Nodes(plane, tmp_path, networks)
        port = running.enter_context(kubelet(made.pods))
        for network in networks.values():
            running.enter_context(network.reach(api, port))
            for address in ADDRESSES.values():
                network.add_address(address)
        address, profiles = (f"127.0.0.1:{port}" for port in free_ports(2))
        common = ["--kubelet-sync-interval=1s", "--disable-query-kubelet-config", "--enable-nri-runtime-hook=false"]
        common += ["--feature-gates=TCNetworkQoS=true", f"--runtime-hooks-config-path={tmp_path}"]
        arguments = {
            "ours": ["--addr=0", "--runtime-hooks-addr=", "--runtime-hooks-reconcile-interval=1s"],
            "original": [f"-addr={address}", f"-pprof-addr={profiles}", "--logtostderr=true"],
        }
        arguments["original"].append(f"--runtime-hooks-addr={tmp_path}/hooks.sock")
        programs = {"ours": OURS, "original": (str(original),)}

        def start(name: str, program: tuple[str, ...], given: list[str]) -> subprocess.Popen[bytes]:
            inside = (*networks[name].enter, *program)
            machine = made.machines[name]
            return running.enter_context(koordlet(inside, name, machine, port, plane.kubeconfig, common + given))

        def replace_by_cleanup(name: str) -> int:
            made.programs[name].kill()
            made.programs[name].wait()
            return start(name, OURS, [*arguments["ours"], "--cleanup"]).wait(SECONDS)

        made.replace_by_cleanup = replace_by_cleanup
        made.programs |= {name: start(name, programs[name], arguments[name]) for name in NAMES}
        yield made


def test_both_make_the_same_of_a_nodeslo(nodes: Nodes) -> None:
    nodes.wait(lambda: len(nodes.shown("original")["classes"]) == 4 and nodes.are_alike())
    nodes.wait(lambda: nodes.packets("original") == nodes.packets("ours") == {"1:3": 3, "1:4": 3})
    first = nodes.shown("original")
    nodes.change({"systemStrategy": {"totalNetworkBandwidth": "2G"}})
    nodes.wait(lambda: nodes.shown("original") != first and nodes.are_alike())
    nodes.change({"resourceQOSStrategy": {"policies": {"netQOSPolicy": "terway-qos"}}})
    nodes.wait(lambda: not nodes.shown("original")["classes"] and nodes.are_alike())
    assert nodes.shown("ours")["rules"] == []


def test_cleanup_leaves_nothing_of_ours_or_of_the_originals(nodes: Nodes) -> None:
    nodes.wait(lambda: len(nodes.shown("original")["rules"]) == 3 and nodes.are_alike())
    for name in NAMES:
        assert nodes.replace_by_cleanup(name) == 0, nodes.log()
        assert nodes.shown(name) == {"root": "noqueue", "classes": {}, "rules": []}


def test_a_cap_is_eight_times_that_of_the_original(nodes: Nodes) -> None:
    """Which divides bits by eight twice; a deliberate difference."""
    nodes.wait(lambda: len(nodes.shown("original")["rules"]) == 3 and nodes.are_alike())
    capped = next(pod for pod in nodes.pods if pod["status"]["podIP"] == ADDRESSES["BE"])
    capped["metadata"]["annotations"] = {"koordinator.sh/networkQOS": '{"ingressLimit": "64M", "egressLimit": "64M"}'}

    def caps(name: str) -> list[tuple[str, str, str, str]]:
        classes: dict[str, tuple[str, str, str, str]] = nodes.shown(name)["classes"]
        return [each for handle, each in classes.items() if handle not in ("1:1", "1:2", "1:3", "1:4")]

    nodes.wait(lambda: bool(caps("ours")) and bool(caps("original")))
    assert caps("ours") == [("1:1", "64Mbit", "64Mbit", "3")]
    assert caps("original") == [("1:1", "8Mbit", "8Mbit", "3")]
    nodes.pods.remove(capped)
    nodes.wait(lambda: not caps("ours") and nodes.are_alike())
