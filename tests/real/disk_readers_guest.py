"""Two pods that read a disk as fast as it goes, of a whole agent on a kernel with the cost model of disks (iocost).

Run as a program, as root, in a virtual machine with a disk; it prints how many requests of each pod were served in each
phase. The policy wants a latency that no disk has, so that the kernel slows the disk down as far as it ever does, to a
hundredth of its model: from then on the weights alone decide who is served.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.real.guest_pods import CGROUPS, GuestPods, tell

DISK = "/dev/vda"
HEAVY, LIGHT = "heavy", "light"
WEIGHTS = {HEAVY: 80, LIGHT: 20}
"""Of the pods, by name."""
Served = dict[str, dict[str, int]]
"""Requests of each pod, by phase."""
_REQUESTS = 1500
"""That are counted in a phase."""
_CPUS = 2
_CONTROLLERS = "+cpu +memory +io"
_MOST_SECONDS = 120.0
_BLOCK = {"name": DISK, "type": "device"}
_MODEL_REQUESTS = 30_000
"""Per second."""
_MODEL = {
    "enableUserModel": True,
    **dict.fromkeys(("modelReadBPS", "modelWriteBPS"), 1 << 40),
    **dict.fromkeys(("modelReadSeqIOPS", "modelReadRandIOPS"), _MODEL_REQUESTS),
    **dict.fromkeys(("modelWriteSeqIOPS", "modelWriteRandIOPS"), _MODEL_REQUESTS),
    **dict.fromkeys(("readLatency", "writeLatency"), 1),
}
_ROOT = {"blkioQOS": {"enable": True, "blocks": [{**_BLOCK, "ioCfg": _MODEL}]}}
_SLO: dict[str, Any] = {"resourceQOSStrategy": {"cgroupRoot": _ROOT}}
_READ = """
import mmap, os, random, sys, threading
descriptor = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
def read():
    block = mmap.mmap(-1, 4096)
    while True:
        os.preadv(descriptor, [block], random.randrange(1 << 18) * 4096)
for _ in range(8):
    threading.Thread(target=read).start()
"""


def _served(guest: GuestPods) -> dict[str, int]:
    found = {}
    for name in WEIGHTS:
        words = (CGROUPS / guest.container(name) / "io.stat").read_text().split()
        counters = dict(word.split("=") for word in words if "=" in word)
        found[name] = int(counters.get("rios", 0))
    return found


async def _count(guest: GuestPods) -> dict[str, int]:
    before = _served(guest)

    def so_far() -> dict[str, int]:
        return {name: count - before[name] for name, count in _served(guest).items()}

    assert await guest.pass_until(lambda: sum(so_far().values()) >= _REQUESTS, _MOST_SECONDS), so_far()
    return so_far()


def _is_slow(guest: GuestPods) -> bool:
    """Whether the pods have their weights, and the kernel does not slow the disk down any more."""
    pods = {name: CGROUPS / Path(guest.container(name)).parent / "io.weight" for name in WEIGHTS}
    has_weights = all(f" {WEIGHTS[name]}\n" in path.read_text() for name, path in pods.items())
    return has_weights and "cost.vrate=1.00" in (CGROUPS / "io.stat").read_text()


async def _story(guest: GuestPods) -> Served:
    guest.node.gates = ("BlkIOReconcile",)
    for name, weight in WEIGHTS.items():
        blocks = [{**_BLOCK, "ioCfg": {"ioWeightPercent": weight}}]
        annotations = {"koordinator.sh/blkioQOS": json.dumps({"blocks": blocks})}
        guest.start(name, "BE", [sys.executable, "-c", _READ, DISK], annotations=annotations)
    assert await guest.pass_until(lambda: min(_served(guest).values()) > 0, _MOST_SECONDS), _served(guest)
    found = {"without an agent": await _count(guest)}
    guest.node.show_slo(_SLO)
    async with guest.node.running():
        assert await guest.pass_until(lambda: _is_slow(guest), _MOST_SECONDS), (CGROUPS / "io.stat").read_text()
        found["with weights"] = await _count(guest)
    return found


if __name__ == "__main__":
    sys.exit(tell(_story, _CPUS, _CONTROLLERS))
