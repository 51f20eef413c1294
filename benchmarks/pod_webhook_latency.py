"""How long the pod mutating webhook takes at a steady rate of pods, beside the Go original on the same API server.

Each program runs as in a cluster, with 50 ClusterColocationProfiles of which four match every pod; the requests go
straight to its webhook port, over TLS on a few connections that are kept, at fixed times: a request that had to wait
for its turn counts from the moment at which it should have been sent. ``late_p99_ms`` is how much of that was the
sender's own lateness: what the machine does to a process that only sleeps and wakes.

usage: python -m benchmarks.pod_webhook_latency [--rate 200] [--seconds 20] [--profiles 50] [--only ours|original]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
import uvloop

from benchmarks.process_usage import OtherLoad, usage_of
from koordinator.kube.tls import TLSSettings, build_context
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import PROFILES, create, gates, install, prepare
from tests.real.manager_process import OURS, ManagerProcess, manager
from tests.real.programs import HOW_TO_GET, RealPrograms, find_real_programs

_ARGUMENTS: Final = ("--enable-leader-election=false", gates())
_WARM_UP_SECONDS: Final = 3.0
_CONNECTIONS: Final = 8
_KINDS: Final = 12
_PATH: Final = "/mutate-pod"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one JSON line; 1 when the programs are absent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=200, help="pods a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each program")
    parser.add_argument("--profiles", type=int, default=50)
    parser.add_argument("--only", choices=("ours", "original"), default="")
    given = parser.parse_args(arguments)
    programs = find_real_programs()
    if programs is None:
        sys.stderr.write(f"{HOW_TO_GET}\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        figures = _compare(programs, Path(folder), given)
    print(json.dumps({"benchmark": "pod_webhook_latency", **vars(given), **figures}))
    return 0


def _compare(programs: RealPrograms, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    commands = {"ours": OURS, "original": (str(programs.original / "koord-manager"),)}
    cluster = ControlPlane(programs.kubernetes, folder / "cluster")
    cluster.start()
    try:
        prepare(cluster)
        for number in range(given.profiles):
            create(cluster, PROFILES, _profile(number))
        figures = {}
        for name, command in commands.items():
            if name != (given.only or name) or not Path(command[0]).is_file():
                continue
            install(cluster)
            with manager(command, cluster.kubeconfig, folder / name, arguments=_ARGUMENTS) as running:
                running.wait_ready()
                figures[name] = uvloop.run(_measure(running, given.rate, given.seconds))
        return figures
    finally:
        cluster.stop()


async def _measure(running: ManagerProcess, rate: int, seconds: float) -> dict[str, Any]:
    tls = build_context(TLSSettings(authority_file=str(running.certificates / "ca-cert.pem")))
    async with aiohttp.ClientSession(
        f"https://127.0.0.1:{running.webhook_port}",
        connector=aiohttp.TCPConnector(ssl=tls, limit=_CONNECTIONS),
        headers={"Content-Type": "application/json"},
    ) as session:
        await _ask(session, rate, _WARM_UP_SECONDS)
        before, others = usage_of(running.process.pid), OtherLoad()
        latencies, lateness = map(sorted, await _ask(session, rate, seconds))
        used = usage_of(running.process.pid).cpu_seconds - before.cpu_seconds
    return {
        "requests": len(latencies),
        "cpu_ms_per_request": round(used / len(latencies) * 1000, 3),
        "others_busy_cores": round(others.cores(), 2),
        **{f"p{part}_ms": round(latencies[len(latencies) * part // 100] * 1000, 3) for part in (50, 90, 99)},
        "max_ms": round(latencies[-1] * 1000, 3),
        "late_p99_ms": round(lateness[len(lateness) * 99 // 100] * 1000, 3),
    }


async def _ask(session: aiohttp.ClientSession, rate: int, seconds: float) -> tuple[list[float], list[float]]:
    """Seconds from the moment at which each request was due: to its answer, and to its start."""
    latencies: list[float] = []
    lateness: list[float] = []
    reviews = [_review(number) for number in range(round(rate * seconds))]
    start = time.perf_counter() + 0.1

    async def one(review: bytes, due: float) -> None:
        lateness.append(time.perf_counter() - due)
        async with session.post(_PATH, data=review) as answer:
            body = await answer.read()
        latencies.append(time.perf_counter() - due)
        if b'"patch":' not in body:
            raise RuntimeError(f"the pod was not changed: {body.decode()}")

    async with asyncio.TaskGroup() as tasks:
        for number, review in enumerate(reviews):
            due = start + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.create_task(one(review, due), name=f"request {number}")
    return latencies, lateness


def _profile(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": f"profile-{number:02}"},
        "spec": {
            "selector": {"matchLabels": {"kind": f"kind-{number % _KINDS}"}},
            "qosClass": "BE",
            "labels": {f"label-{number:02}": "yes"},
            "annotations": {"by": f"profile-{number:02}"},
            "schedulerName": "koord-scheduler",
        },
    }


def _review(number: int) -> bytes:
    resources = {"cpu": "1", "memory": "2Gi"}
    container = {
        "image": "registry.example/spark:3.5",
        "resources": {"requests": resources, "limits": resources},
        "env": [{"name": f"VARIABLE_{index}", "value": "value"} for index in range(20)],
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}", "namespace": "default", "labels": {"kind": f"kind-{number % _KINDS}"}},
        "spec": {
            "containers": [{"name": name, **container} for name in ("driver", "sidecar")],
            "volumes": [{"name": "work", "emptyDir": {}}],
            "restartPolicy": "Never",
        },
    }
    request = {
        "uid": f"uid-{number}",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": f"pod-{number}",
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:job-controller"},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
    }
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return json.dumps(review).encode()


if __name__ == "__main__":
    sys.exit(main())
