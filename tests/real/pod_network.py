"""Addresses for the pods of the real node, and a way to the API server's Service, which kube-proxy has elsewhere.

Pods are on a bridge, from which the loopback address of the API server is reached at the address of its Service.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

_API_SERVICE: Final = "10.96.0.1"
"""The first of the API server's --service-cluster-ip-range, where pods look for it."""
_BRIDGE: Final = "koordtest0"
_GATEWAY: Final = "10.244.77.1"
_SUBNET: Final = "10.244.77.0/24"


@contextmanager
def pod_network(node_folder: Path, api_port: int) -> Iterator[None]:
    """The network for a node whose files will be in ``node_folder``, around everything that uses it; skips the test
    where the machine lacks something."""
    if missing := [program for program in ("ip", "iptables", "sysctl") if shutil.which(program) is None]:
        pytest.skip(f"apt-get install iproute2 iptables procps: {missing[0]} is absent")
    _configure(node_folder)
    to_api = (
        f"--destination {_API_SERVICE} --protocol tcp --dport 443 --jump DNAT --to-destination 127.0.0.1:{api_port}"
    )
    with ExitStack() as undone:
        _change(undone, f"ip link add {_BRIDGE} type bridge", f"ip link delete {_BRIDGE}")
        _run(f"ip address add {_GATEWAY}/24 dev {_BRIDGE}")
        _run(f"ip link set {_BRIDGE} up")
        # Else what comes from the bridge is not let to the loopback address. It goes with the bridge.
        _run(f"sysctl --quiet --write net.ipv4.conf.{_BRIDGE}.route_localnet=1")
        for chain in (f"PREROUTING --in-interface {_BRIDGE}", "OUTPUT"):
            _change(
                undone,
                f"iptables --table nat --append {chain} {to_api}",
                f"iptables --table nat --delete {chain} {to_api}",
            )
        yield


def _configure(node_folder: Path) -> None:
    """Before the one of the loopback interface, which real-node.sh writes: the first by name counts."""
    folder = node_folder / "cni/conf"
    folder.mkdir(parents=True)
    bridge = {
        "type": "bridge",
        "bridge": _BRIDGE,
        "isGateway": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(node_folder / "cni/addresses"),
            "ranges": [[{"subnet": _SUBNET, "gateway": _GATEWAY}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    document = {"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "loopback"}, bridge]}
    (folder / "05-pods.conflist").write_text(json.dumps(document))


def _change(undone: ExitStack, command: str, undo: str) -> None:
    _run(command)
    undone.callback(_run, undo)


def _run(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
