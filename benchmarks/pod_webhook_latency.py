"""How long the pod mutating webhook takes at a steady rate of pods, beside the Go original on the same API server.

Each program runs as in a cluster, with 50 ClusterColocationProfiles; ``benchmarks.webhook_cases`` says which cases
there are. The requests go straight to its webhook port, over TLS on a few connections that are kept, at fixed times: a
request that had to wait for its turn counts from the moment at which it should have been sent. ``late_p99_ms`` is how
much of that was the sender's own lateness: what the machine does to a process that only sleeps and wakes. CPU is the
program's, by request; where nodes report meanwhile, the reports are in it.

With ``--overload`` each request has a connection of its own, as with API servers, and every third pod has a high
priority; the case ``all`` at a rate of 1,000 is an overload. ``refused`` are the pods that got 429 instead of an
admission, ``refused_of_high_priority`` those of them with a high priority, and ``high_priority_p99_ms`` is the latency
of those that were answered.

usage: python -m benchmarks.pod_webhook_latency [--rate 500] [--seconds 20] [--profiles 50] [--case mix] [--only ours]
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
from http import HTTPStatus
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
_REQUIRED_MS: Final = 10.0
_OVERLOAD_CONNECTIONS: Final = 800
_OPENED_AT_ONCE: Final = 50
_HIGH_PRIORITY: Final = 9500
_HIGH_EVERY: Final = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Print one JSON line; 1 when the programs are absent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=500, help="pods a second")
    parser.add_argument("--overload", action="store_true", help="expect that not all of them are answered")
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
        connector=aiohttp.TCPConnector(ssl=tls, limit=_OVERLOAD_CONNECTIONS if given.overload else _CONNECTIONS),
        headers={"Content-Type": "application/json"},
    ) as session:
        await _until_right(session, case, given.profiles)
        warm_up = Sent(given.overload)
        if given.overload:
            await _open_connections(session)
        await warm_up.send(session, given.rate, _WARM_UP_SECONDS)
        before, others, sent = usage_of(running.process.pid), OtherLoad(), Sent(given.overload)
        await sent.send(session, given.rate, given.seconds)
        used = usage_of(running.process.pid).cpu_seconds - before.cpu_seconds
    latencies = sorted([*sent.latencies, *sent.high_priority])
    return {
        "requests": len(latencies),
        "cpu_ms_per_request": round(used / len(latencies) * 1000, 3),
        "p50_ms": _percentile(latencies, 50),
        "p95_ms": _percentile(latencies, 95),
        "p99_ms": _percentile(latencies, 99),
        "max_ms": round(latencies[-1] * 1000, 3),
        "percent_above_10_ms": round(sum(each * 1000 > _REQUIRED_MS for each in latencies) / len(latencies) * 100, 2),
        "late_p99_ms": _percentile(sorted(sent.lateness), 99),
        **sent.overload(),
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


async def _open_connections(session: aiohttp.ClientSession) -> None:
    """Some more each time: this is about requests, not about handshakes."""
    for count in range(_OPENED_AT_ONCE, _OVERLOAD_CONNECTIONS + 1, _OPENED_AT_ONCE):
        await asyncio.gather(*(_healthy(session) for _ in range(count)))


async def _healthy(session: aiohttp.ClientSession) -> None:
    async with session.get("/healthz") as response:
        await response.read()


class Sent:
    """Requests at fixed times. In seconds from the moment at which each was due: ``latencies`` to its response,
    ``lateness`` to its start."""

    def __init__(self, is_overload: bool) -> None:
        self._is_overload = is_overload
        self.latencies: list[float] = []
        self.high_priority: list[float] = []
        """Latencies of the pods that have it."""
        self.lateness: list[float] = []
        self._refused: list[bool] = []
        """For each, whether it has a high priority."""

    async def send(self, session: aiohttp.ClientSession, rate: int, seconds: float) -> None:
        reviews = [review(number, self._priority(number)) for number in range(round(rate * seconds))]
        start = time.perf_counter() + 0.1
        async with asyncio.TaskGroup() as tasks:
            for number, body in enumerate(reviews):
                due = start + number / rate
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                is_high = self._priority(number) is not None
                tasks.create_task(self._one(session, body, due, is_high), name=f"request {number}")

    async def _one(self, session: aiohttp.ClientSession, body: bytes, due: float, is_high: bool) -> None:
        self.lateness.append(time.perf_counter() - due)
        async with session.post(_PATH, data=body) as response:
            text = await response.read()
        if self._is_overload and response.status == HTTPStatus.TOO_MANY_REQUESTS:
            self._refused.append(is_high)
            return
        (self.high_priority if is_high else self.latencies).append(time.perf_counter() - due)
        if b'"patch":' not in text:
            raise RuntimeError(f"the pod was not changed: {text.decode()}")

    def _priority(self, number: int) -> int | None:
        return _HIGH_PRIORITY if self._is_overload and number % _HIGH_EVERY == 0 else None

    def overload(self) -> dict[str, Any]:
        """Figures of an overload; none without."""
        if not self._is_overload:
            return {}
        return {
            "refused": len(self._refused),
            "refused_of_high_priority": sum(self._refused),
            "high_priority_p99_ms": _percentile(sorted(self.high_priority), 99),
        }


if __name__ == "__main__":
    sys.exit(main())
