"""A program that runs rounds of TCNetworkQoS in the network namespace in which it is started.

Each line on stdin is a NodeSLO and pods as JSON, ``pods`` null while they are not known; the response is one line: the
minor numbers of pods, what was logged, whether there is a tree now by the cheap check for it, and whether pyroute2 has
been imported. ``enabled`` false is ``koordlet --cleanup``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from typing import Any

from koordinator.api.codec import convert
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.api.pod import Pod
from koordinator.koordlet.enforce.hooks.network_qos import NetworkQoS
from koordinator.koordlet.pods.node_pod import NodePod, node_pods
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.netlink_traffic_control import KERNEL, PACKAGE

_LAYOUT = CgroupLayout("/sys/fs/cgroup", CgroupVersion.V2, CgroupDriver.SYSTEMD)


class _Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


async def main() -> None:
    """Until stdin ends."""
    given: dict[str, Any] = {}
    log = _Log()
    logging.getLogger().addHandler(log)

    def pods() -> Sequence[NodePod] | None:
        return None if given["pods"] is None else node_pods([convert(pod, Pod) for pod in given["pods"]], _LAYOUT)

    sources = (lambda: convert(given["slo"], NodeSLOSpec)), pods, lambda: False
    networks = {enabled: NetworkQoS(KERNEL, *sources, is_enabled=enabled) for enabled in (True, False)}
    while line := await asyncio.to_thread(sys.stdin.readline):
        given.update(json.loads(line))
        log.lines.clear()
        network = networks[given.get("enabled", True)]
        for _ in range(given.get("rounds", 1)):
            await network.reconcile()
        response = {
            "minors": dict(network.minors),
            "log": log.lines,
            "has_tree": KERNEL.has_tree(),
            "has_imported": PACKAGE in sys.modules,
        }
        sys.stdout.write(json.dumps(response) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
