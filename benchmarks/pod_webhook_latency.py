"""How long the pod mutating webhook takes at a steady rate of pods, beside the Go original on the same API server.

Each program runs as in a cluster, with 50 ClusterColocationProfiles; ``benchmarks.webhook_cases`` says which cases
there are. The requests go straight to its webhook port, over TLS on a few connections that are kept, at fixed times: a
request that had to wait for its turn counts from the moment at which it should have been sent. ``late_p99_ms`` is how
much of that was the sender's own lateness: what the machine does to a process that only sleeps and wakes. CPU is the
program's, by request; where nodes report meanwhile, the reports are in it.

usage: python -m benchmarks.pod_webhook_latency [--rate 200] [--seconds 20] [--profiles 50] [--case mix] [--only ours]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import aiohttp
import uvloop

from benchmarks.node_reports import reporting
from benchmarks.process_usage import OtherLoad, usage_of
from benchmarks.webhook_cases import CASES, Case, is_label_key, label_keys, review
from koordinator.kube.tls import TLSSettings, build_context
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import PROFILES, create, gates, install, prepare
from tests.real.manager_process import OURS, ManagerProcess, manager
from tests.real.programs import HOW_TO_GET, RealPrograms, find_real_programs

_ARGUMENTS: Final = ("--enable-leader-election=false", gates())
_WARM_UP_SECONDS: Final = 3.0
_KNOWN_SECONDS: Final = 30.0
_CONNECTIONS: Final = 8
_PATH: Final = "/mutate-pod"
_REQUIRED_MS: Final = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one JSON line; 1 when the programs are absent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=200, help="pods a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each program and case")
    parser.add_argument("--profiles", type=int, default=50)
    parser.add_argument("--case", choices=tuple(CASES), action="append", help="one of the cases (default: all)")
    parser.add_argument("--only", choices=("ours", "original"), default="")
    parser.add_argument("--nodes", type=int, default=300, help="where nodes report")
    parser.add_argument("--reports", type=float, default=40.0, help="a second, where nodes report")
    given = parser.parse_args(arguments)
    programs = find_real_programs()
    if programs is None:
        sys.stderr.write(f"{HOW_TO_GET}\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        cases = _compare(programs, Path(folder), given)
    print(json.dumps({"benchmark": "pod_webhook_latency", **vars(given), "cases": cases}))
    return 0


def _compare(programs: RealPrograms, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Figures by case and program. The programs run one after the other in each case, so that what else the machine
    does is much the same for both."""
    commands = {"ours": OURS, "original": (str(programs.original / "koord-manager"),)}
    found = {name: command for name, command in commands.items() if Path(command[0]).is_file()}
    cluster = ControlPlane(programs.kubernetes, folder / "cluster")
    cluster.start()
    try:
        prepare(cluster)
        figures: dict[str, Any] = {}
        for case in (CASES[name] for name in given.case or CASES):
            with _profiles(cluster, case, given.profiles):
                figures[case.name] = {
                    name: _run(cluster, command, folder / case.name / name, case, given)
                    for name, command in found.items()
                    if name == (given.only or name)
                }
        return figures
    finally:
        cluster.stop()


@contextmanager
def _profiles(cluster: ControlPlane, case: Case, count: int) -> Iterator[None]:
    documents = [case.profile(number) for number in range(count)]
    for document in documents:
        create(cluster, PROFILES, document)
    yield
    for document in documents:
        cluster.request("DELETE", f"{PROFILES}/{document['metadata']['name']}")


def _run(
    cluster: ControlPlane, command: Sequence[str], folder: Path, case: Case, given: argparse.Namespace
) -> dict[str, Any]:
    install(cluster)
    reports: AbstractContextManager[None] = nullcontext()
    if case.reports:
        reports = reporting(cluster.kubeconfig, nodes=given.nodes, pods_per_node=30, rate=given.reports)
    with manager(command, cluster.kubeconfig, folder, arguments=_ARGUMENTS) as running, reports:
        running.wait_ready()
        return uvloop.run(_measure(running, case, given))


async def _measure(running: ManagerProcess, case: Case, given: argparse.Namespace) -> dict[str, Any]:
    tls = build_context(TLSSettings(authority_file=str(running.certificates / "ca-cert.pem")))
    async with aiohttp.ClientSession(
        f"https://127.0.0.1:{running.webhook_port}",
        connector=aiohttp.TCPConnector(ssl=tls, limit=_CONNECTIONS),
        headers={"Content-Type": "application/json"},
    ) as session:
        await _until_right(session, case, given.profiles)
        await _send(session, given.rate, _WARM_UP_SECONDS)
        before, others = usage_of(running.process.pid), OtherLoad()
        latencies, lateness = map(sorted, await _send(session, given.rate, given.seconds))
        used = usage_of(running.process.pid).cpu_seconds - before.cpu_seconds
    return {
        "requests": len(latencies),
        "cpu_ms_per_request": round(used / len(latencies) * 1000, 3),
        "p50_ms": _percentile(latencies, 50),
        "p95_ms": _percentile(latencies, 95),
        "p99_ms": _percentile(latencies, 99),
        "max_ms": round(latencies[-1] * 1000, 3),
        "percent_above_5_ms": round(sum(each * 1000 > _REQUIRED_MS for each in latencies) / len(latencies) * 100, 2),
        "late_p99_ms": _percentile(lateness, 99),
        "others_busy_cores": round(others.cores(), 2),
        "load_average": os.getloadavg()[0],
    }


def _percentile(ascending: Sequence[float], part: int) -> float:
    return round(ascending[len(ascending) * part // 100] * 1000, 3)


async def _until_right(session: aiohttp.ClientSession, case: Case, profiles: int) -> None:
    """Until the response is what all of the profiles make of a pod, neither more nor less."""
    wanted, given_up = label_keys(case, profiles), time.perf_counter() + _KNOWN_SECONDS
    while (labels := await _labels(session)) != wanted:
        if time.perf_counter() > given_up:
            raise RuntimeError(f"case {case.name}: the pod got {sorted(labels)}, not {sorted(wanted)}")
        await asyncio.sleep(0.1)


async def _labels(session: aiohttp.ClientSession) -> set[str]:
    async with session.post(_PATH, data=review(0)) as response:
        text = json.loads(await response.read())["response"].get("patch")
    paths = [change["path"] for change in json.loads(base64.b64decode(text))] if text else []
    names = {path.rpartition("/")[2] for path in paths if path.startswith("/metadata/labels/")}
    return {name for name in names if is_label_key(name)}


async def _send(session: aiohttp.ClientSession, rate: int, seconds: float) -> tuple[list[float], list[float]]:
    """Seconds from the moment at which each request was due: to its response, and to its start."""
    latencies: list[float] = []
    lateness: list[float] = []
    reviews = [review(number) for number in range(round(rate * seconds))]
    start = time.perf_counter() + 0.1

    async def one(body: bytes, due: float) -> None:
        lateness.append(time.perf_counter() - due)
        async with session.post(_PATH, data=body) as response:
            text = await response.read()
        latencies.append(time.perf_counter() - due)
        if b'"patch":' not in text:
            raise RuntimeError(f"the pod was not changed: {text.decode()}")

    async with asyncio.TaskGroup() as tasks:
        for number, body in enumerate(reviews):
            due = start + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.create_task(one(body, due), name=f"request {number}")
    return latencies, lateness


if __name__ == "__main__":
    sys.exit(main())
