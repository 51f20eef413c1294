"""Hours of all programs on a real API server, while pods, gangs, quotas, Reservations, migrations, nodes come and go.

Two phases, of which each is a run of its own: in ``steady`` no program is touched, and what each of them holds is read
every half minute; in ``kills`` each of them is killed with SIGKILL as often as ``--kills`` says, one after the other,
and started again. In both, each cycle of the churn has to come to its end, and nothing may be given out twice: the pod
watch is looked at after each change (``benchmarks.soak_checks``).

Needs the real Kubernetes programs. Progress goes to stderr; the last line of stdout is one JSON document, which is also
written to ``--output``, with all readings beside it. Status 1 where something was lost, given out twice or grew.

usage: python -m benchmarks.soak [--phase steady|kills] [--hours 2] [--nodes 30] [--kills 100] [--output FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks.process_usage import OtherLoad
from benchmarks.soak_checks import Bookings
from benchmarks.soak_churn import NAMESPACE, WATCHED, Churn, Ledger
from benchmarks.soak_containers import ContainerChurn
from benchmarks.soak_programs import Program, surroundings, under_test
from benchmarks.soak_readings import Reading, growth, read, read_process, watches_of
from benchmarks.workload import create, create_namespace, create_priority_class
from koordinator.api.installation import MANAGER_LEASE
from koordinator.api.kinds import CONFIG_MAPS, LEASES, NODES, PODS, Kind
from koordinator.base.errors import KoordinatorError
from koordinator.base.process import stop_on_signals
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.interface import ListPage
from tests.real.control_plane import ControlPlane, ControlPlaneError
from tests.real.manager_cluster import install, prepare
from tests.real.programs import HOW_TO_GET, RealPrograms, find_real_programs
from tests.real.watched import watching

Document = dict[str, Any]
_SYSTEM: Final = "koordinator-system"
_PRIORITIES: Final = {"koord-prod": 9500, "koord-mid": 7500, "koord-batch": 5500, "koord-free": 3500}
_CONFIGURATION: Final = {"colocation-config": json.dumps({"enable": True})}
_GPU_NODES: Final = 2
_REGISTERED_SECONDS: Final = 120.0
_END_SECONDS: Final = 300.0
_FIELDS: Final = ("resident", "proportional", "files", "sockets", "threads", "tasks", "queued")
_LEADERS: Final = ("koord-scheduler", MANAGER_LEASE, "koord-descheduler")
_DEVICES: Final = 2


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phase", choices=("steady", "kills"), default="steady")
    parser.add_argument("--hours", type=float, default=2.0, help="how long the churn goes on (default 2)")
    parser.add_argument("--nodes", type=int, default=30, help="simulated nodes (default 30), and two with GPUs")
    parser.add_argument("--kills", type=int, default=100, help="of each program, in that phase (default 100)")
    parser.add_argument("--interval", type=float, default=30.0, help="seconds between readings (default 30)")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two cycles of a kind (default 1)")
    parser.add_argument("--workers", type=int, default=2, help="cycles of pods at once (default 2)")
    parser.add_argument("--output", type=Path, help="a folder for the result, the readings and the logs")
    options = parser.parse_args(arguments)
    if min(options.hours, options.nodes, options.interval) <= 0:
        parser.error("--hours, --nodes and --interval must be above 0")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    given = parse(arguments)
    programs = find_real_programs()
    if programs is None:
        print(f"soak: {HOW_TO_GET}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="koordinator-soak-") as temporary:
        # Sockets have short paths.
        folder = Path(temporary)
        try:
            document = uvloop.run(Soak(programs, folder, given).run())
        except (KoordinatorError, ControlPlaneError) as error:
            print(f"soak: {error}", file=sys.stderr)
            return 1
        finally:
            if given.output is not None:
                _keep_logs(folder, given.output)
    text = json.dumps(document)
    if given.output is not None:
        (given.output / "result.json").write_text(text)
    print(text)
    return 0 if document["ok"] else 1


class Soak:
    """One run of one phase."""

    def __init__(self, programs: RealPrograms, folder: Path, given: argparse.Namespace) -> None:
        self._programs = programs
        self._folder = folder
        self._given = given
        self._readings: dict[str, list[Reading]] = {}
        self._watches: list[int] = []
        self._holders: dict[str, list[str]] = {}
        """Lease -> who held it, one after the other."""
        self._interrupted = asyncio.Event()
        """By SIGTERM or SIGINT: the churn ends, and what was seen until then is reported."""
        self._ended: Counter[str] = Counter()
        """Programs that ended without being killed."""

    async def run(self) -> Document:
        stop_on_signals(self._interrupted)
        with ControlPlane(self._programs.kubernetes, self._folder / "plane") as plane:
            await asyncio.to_thread(prepare, plane)
            await asyncio.to_thread(install, plane)
            client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig), qps=2000, burst=2000))
            try:
                await _prepare(client)
                async with self._running(plane, client) as tested:
                    return await self._soak(plane, client, tested)
            finally:
                await client.close()

    @asynccontextmanager
    async def _running(self, plane: ControlPlane, client: KubeClient) -> AsyncIterator[dict[str, Program]]:
        given, around = self._given, list[Program]()
        tested: list[Program] = []
        try:
            for program in surroundings(self._programs, plane, self._folder, given.nodes, _GPU_NODES):
                around.append(program)
                await program.start()
                if program.name == "nodes":
                    await _until_registered(client, given.nodes + _GPU_NODES)
            for program in under_test(plane, self._folder):
                tested.append(program)
                await program.start()
                self._say(f"{program.name} is ready after {program.starts[0]:.1f} s")
            yield {program.name: program for program in tested}
        finally:
            for program in (*reversed(tested), *reversed(around)):
                program.end()

    async def _soak(self, plane: ControlPlane, client: KubeClient, tested: dict[str, Program]) -> Document:
        given, load, stop = self._given, OtherLoad(), asyncio.Event()
        seconds = given.hours * 3600
        async with watching(client, *((kind, NAMESPACE if kind.namespaced else "") for kind in WATCHED)) as watched:
            bookings = Bookings(lambda name: watched.get(NODES, name))
            watched.informers.informer(PODS, namespace=NAMESPACE).add_handlers(
                on_add=lambda pod, initial: bookings.seen(pod),
                on_update=lambda old, new: bookings.seen(new),
                on_delete=bookings.gone,
            )
            churn = Churn(watched, seconds=240.0 if given.phase == "kills" else 120.0)
            containers = ContainerChurn(self._folder / "proxy.sock")
            async with asyncio.TaskGroup() as tasks:
                churning = tasks.create_task(churn.run(stop, given.pause, given.workers), name="churn")
                tasks.create_task(containers.run(stop, given.pause), name="containers")
                reading = tasks.create_task(self._read(plane, client, tested, churn, bookings), name="readings")
                leases = tasks.create_task(self._follow_leases(client), name="leases")
                if given.phase == "kills":
                    await self._kill(tested, seconds)
                else:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._interrupted.wait(), seconds)
                stop.set()
                self._say("the churn ends")
                async with asyncio.timeout(_END_SECONDS):
                    await churning
                reading.cancel()
                leases.cancel()
            left = await _left(client)
        ledgers = {**churn.ledgers, "containers": containers.ledger}
        devices = _devices(self._folder)
        exits = await asyncio.to_thread(_stop_all, tested)
        return self._report(tested, ledgers, bookings, left, devices, exits, load.cores())

    async def _kill(self, tested: dict[str, Program], seconds: float) -> None:
        """Each as often as it is to be, evenly over the time; not two at once, so that each start is seen."""
        loop = asyncio.get_running_loop()
        started, count = loop.time(), self._given.kills * len(tested)
        for number in range(count):
            program = list(tested.values())[number % len(tested)]
            await asyncio.sleep(max(0.0, started + seconds * number / count - loop.time()))
            if self._interrupted.is_set():
                return
            await program.kill()

    async def _read(
        self, plane: ControlPlane, client: KubeClient, tested: dict[str, Program], churn: Churn, bookings: Bookings
    ) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        servers = {"kube-apiserver": plane.api_server_process, "etcd": plane.etcd_process}
        while True:
            moment = loop.time() - started
            for name, program in tested.items():
                # It is between its end and its new start.
                with suppress(OSError, ProcessLookupError):
                    self._readings.setdefault(name, []).append(await read(program, moment))
                if program.has_ended and self._given.phase == "steady":
                    self._ended[name] += 1
                    self._say(f"{name} has ended by itself: {program.log_tail()}")
                    await program.start()
            for name, process in servers.items():
                self._readings.setdefault(name, []).append(read_process(process, moment))
            self._watches.append(watches_of((await client.raw("GET", "/metrics")).decode()))
            self._progress(moment, tested, churn, bookings)
            await asyncio.sleep(max(0.0, started + moment + self._given.interval - loop.time()))

    def _progress(self, moment: float, tested: dict[str, Program], churn: Churn, bookings: Bookings) -> None:
        resident = ", ".join(f"{name} {readings[-1].resident:.0f}" for name, readings in self._readings.items())
        completed = sum(ledger.completed for ledger in churn.ledgers.values())
        lost = sum(len(ledger.lost) for ledger in churn.ledgers.values())
        kills = sum(program.kills for program in tested.values())
        self._say(
            f"{moment / 60:.1f} min: {completed} cycles, {lost} lost, {bookings.bound} bound, "
            f"{bookings.faults.total()} faults, {kills} kills, {self._watches[-1]} watches; MiB: {resident}"
        )

    async def _follow_leases(self, client: KubeClient) -> None:
        async with watching(client, (LEASES, _SYSTEM)) as watched:

            def seen(lease: Any) -> None:
                holders = self._holders.setdefault(lease.metadata.name, [])
                holder = lease.spec.holder_identity or ""
                if not holders or holders[-1] != holder:
                    holders.append(holder)

            watched.hear(LEASES, seen)
            await asyncio.Event().wait()

    def _report(
        self,
        tested: dict[str, Program],
        ledgers: dict[str, Ledger],
        bookings: Bookings,
        left: dict[str, list[str]],
        devices: int,
        exits: dict[str, int],
        other_cores: float,
    ) -> Document:
        given = self._given
        if given.output is not None:
            rows = {name: [each.document() for each in readings] for name, readings in self._readings.items()}
            (given.output / "readings.json").write_text(json.dumps({"programs": rows, "watches": self._watches}))
        programs = {name: self._of_program(name, tested.get(name)) for name in self._readings}
        grown = {
            name: [field for field in _FIELDS if (found := document.get(field)) and found["grows"]]
            for name, document in programs.items()
            if name in tested and given.phase == "steady"
        }
        lost = [text for ledger in ledgers.values() for text in ledger.lost]
        unfinished = {kind: ledger.started - ledger.completed - len(ledger.lost) for kind, ledger in ledgers.items()}
        bad_exits = {name: status for name, status in exits.items() if status}
        changes = {name: len(self._holders.get(name, [])) - 1 for name in _LEADERS}
        ok = not (
            lost
            or bookings.faults
            or any(left.values())
            or any(grown.values())
            or any(unfinished.values())
            or self._ended
            or bad_exits
            or devices != _DEVICES
            or (given.phase == "steady" and any(changes.values()))
        )
        return {
            "benchmark": "soak",
            "phase": given.phase,
            "hours": round(next(iter(self._readings.values()))[-1].seconds / 3600, 2),
            "nodes": given.nodes + _GPU_NODES,
            "ok": ok,
            "pods_bound": bookings.bound,
            "given_out_twice": dict(bookings.faults),
            "lost": lost,
            "left_over": left,
            "ended_by_itself": dict(self._ended),
            "exit_statuses": exits,
            "grown": {name: fields for name, fields in grown.items() if fields},
            "leader_changes": changes,
            "devices_in_file": devices,
            "watches": {"first": self._watches[0], "last": self._watches[-1], "most": max(self._watches)},
            "cycles": {kind: ledger.document() for kind, ledger in ledgers.items()},
            "programs": programs,
            "other_cores": round(other_cores, 2),
        }

    def _of_program(self, name: str, program: Program | None) -> Document:
        readings = self._readings[name]
        document: Document = {"readings": len(readings), "cpu_seconds": readings[-1].cpu}
        if self._given.phase == "steady" or program is None:
            document |= {field: growth(readings, field) for field in _FIELDS}
        if program is not None and program.kills:
            starts = sorted(program.starts[1:])
            document |= {
                "kills": program.kills,
                "start_seconds_median": round(statistics.median(starts), 2),
                "start_seconds_most": round(starts[-1], 2),
                "resident_most": max(each.resident for each in readings),
            }
        return document

    def _say(self, text: str) -> None:
        print(f"soak {self._given.phase}: {text}", file=sys.stderr, flush=True)


async def _prepare(client: KubeClient) -> None:
    """What an administrator has written before the programs start."""
    await create_namespace(client, NAMESPACE)
    for name, value in _PRIORITIES.items():
        await create_priority_class(client, name, value)
    metadata = {"name": "slo-controller-config"}
    await create(client, CONFIG_MAPS, {"metadata": metadata, "data": _CONFIGURATION}, _SYSTEM)


async def _until_registered(client: KubeClient, count: int) -> None:
    async with asyncio.timeout(_REGISTERED_SECONDS):
        while len((await client.list(NODES)).items) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.5)


async def _left(client: KubeClient) -> dict[str, list[str]]:
    """Objects of the churn that are still there, but for what the system itself has made."""
    found = {}
    kinds: tuple[Kind[Any], ...] = WATCHED
    for kind in kinds:
        page: ListPage[Any] = await client.list(kind, NAMESPACE if kind.namespaced else "")
        names = [each.metadata.name for each in page.items if _is_of_churn(each.metadata.name)]
        if names:
            found[kind.name] = names
    return found


def _is_of_churn(name: str) -> bool:
    return name.startswith(("pods-", "gang-", "quota-", "reservation-", "migration-", "node-"))


def _devices(folder: Path) -> int:
    """How many accelerators the device daemon has written."""
    try:
        return len(json.loads((folder / "machine/out/ic-device").read_text()))
    except FileNotFoundError:
        return 0


def _stop_all(tested: dict[str, Program]) -> dict[str, int]:
    return {name: program.stop() for name, program in tested.items()}


def _keep_logs(folder: Path, output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        (output / log.name).write_bytes(log.read_bytes()[-1_000_000:])


if __name__ == "__main__":
    sys.exit(main())
