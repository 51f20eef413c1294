"""docs/metrics.md: the metrics of all programs, as the running programs have them.

``python -m tests.docs.metrics_page`` writes the page anew. The programs run in this process, one after the other,
beside an embedded API; koordlet's are those of the recorded nodes (``tests/koordlet/recorded``).
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest.mock import patch

import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from koordinator.base.metrics import Metrics
from koordinator.base.program import Process, Run
from koordinator.kube.serving import HealthServer
from tests.docs.generated_pages import ROOT, table, write_or_print
from tests.free_ports import free_ports
from tests.manager.test_on_embedded_api import installed
from tests.waiting import PATIENCE

PAGE: Final = ROOT / "docs/metrics.md"
_RECORDED: Final = ROOT / "tests/koordlet/recorded"
_STABILITY: Final = re.compile(r"^\[\w+\] ")
_COMMON: Final = ("koord-scheduler", "koord-manager", "koord-descheduler")
_WHERE: Final[Mapping[str, str]] = {
    "koord-scheduler": "`:10259/metrics` in the chart, over HTTPS; `--port`, 10251 on loopback by default",
    "koord-manager": "`:10257/metrics` in the chart, over HTTPS; `--metrics-addr`, `127.0.0.1:8080` by default",
    "koord-descheduler": "`:10258/metrics` in the chart, over HTTPS; `--port`, 10251 on loopback by default",
    "koordlet": "`127.0.0.1:9316/metrics`, `--addr`; with `koordlet.enableServiceMonitor` `:9319/metrics`, over HTTPS",
    "koord-device-daemon": "`127.0.0.1:9317/metrics`, `--metrics-addr`; with `deviceDaemon.monitorEnabled` "
    "`:9320/metrics`, over HTTPS",
    "koord-runtime-proxy": "`--metrics-addr`, `127.0.0.1:9318` by default",
}
_INTRODUCTION: Final = """\
# Metrics

The metrics of every program, as it has them when it runs with the configuration of the chart. Those of
Kubernetes and of the Go original keep their names and labels, so that dashboards and alerts for them work. A
histogram has the series `NAME_bucket`, `NAME_sum` and `NAME_count`. Where no labels are shown, there are none, or
none before something has happened.

`python -m tests.docs.metrics_page` writes this page from the running programs.
"""


@dataclass(frozen=True, slots=True)
class Described:
    """One metric; ``labels`` as far as they are known."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


@dataclass(frozen=True, slots=True)
class Running:
    """What a program has when it says that it works."""

    metrics: Mapping[str, Described]
    routes: Sequence[str]
    """The paths that it serves; docs/access.md says who may see them."""


def page(running: Mapping[str, Running]) -> str:
    """The whole page, in Markdown."""
    found = {name: program.metrics for name, program in running.items()} | {"koordlet": _of_koordlet()}
    common = set.intersection(*(set(found[name]) for name in _COMMON))
    sections = [_INTRODUCTION, _table(", ".join(_COMMON), "What the three have in common", found[_COMMON[0]], common)]
    sections += [
        _table(name, where, metrics := found[name], set(metrics) - (common if name in _COMMON else set()))
        for name, where in _WHERE.items()
    ]
    return "\n".join(sections)


def _table(title: str, where: str, metrics: Mapping[str, Described], names: Set[str]) -> str:
    head = ["metric", "type", "labels", "meaning"]
    return f"## {title}\n\n{where}.\n\n{table(head, (_row(metrics[name]) for name in sorted(names)))}"


def _row(one: Described) -> Sequence[str]:
    labels = ", ".join(f"`{label}`" for label in one.labels)
    return [f"`{one.name}`", one.kind, labels, one.meaning]


def _of_koordlet() -> dict[str, Described]:
    """Of both recordings: the two versions of cgroups have not the same."""
    texts = [(_RECORDED / name).read_text() for name in ("metrics.txt", "metrics_v2.txt")]
    described: dict[str, Described] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            one = _one(family, None)
            known = described.get(one.name)
            described[one.name] = one if known is None or not known.labels else known
    return described


def _described(metrics: Metrics) -> dict[str, Described]:
    declared = {name: labels for name, (_, labels) in metrics._known.items()}
    found = [_one(family, declared.get(family.name)) for family in metrics.registry.collect()]
    return {one.name: one for one in found if not one.name.startswith("python_")}


def _one(family: Metric, declared: tuple[str, ...] | None) -> Described:
    """The labels are those of the declaration, if there is one, and else those of the samples."""
    kind = {"unknown": "untyped"}.get(family.type, family.type)
    sampled = {label: None for sample in family.samples for label in sample.labels if label != "le"}
    labels = declared or getattr(family, "_labelnames", None) or tuple(sampled)
    name = f"{family.name}_total" if kind == "counter" and not family.name.endswith("_total") else family.name
    return Described(name, kind, tuple(labels), _STABILITY.sub("", family.documentation).rstrip("."))


async def run_all() -> dict[str, Running]:
    """All but koordlet, one after the other."""
    scheduler, descheduler, manager, pages, webhook, daemon, proxy = free_ports(7)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cluster = f"--kubeconfig={folder}/kubeconfig"
        sockets = (f"--koord-runtimeproxy-endpoint={folder}/proxy", f"--remote-runtime-service-endpoint={folder}/none")
        environment = {
            "WEBHOOK_HOST": "127.0.0.1",
            "WEBHOOK_PORT": str(webhook),
            "WEBHOOK_CERT_DIR": f"{folder}/certificates",
        }
        async with installed(folder):
            return {
                "koord-scheduler": await _running(
                    "scheduler", scheduler, cluster, _configuration("koord-scheduler", folder), f"--port={scheduler}"
                ),
                "koord-descheduler": await _running(
                    "descheduler", descheduler, cluster, _configuration("koord-descheduler", folder, descheduler)
                ),
                "koord-manager": await _running(
                    "manager",
                    manager,
                    cluster,
                    "--enable-leader-election=false",
                    "--enable-pprof=false",
                    f"--metrics-addr=127.0.0.1:{pages}",
                    f"--health-probe-addr=127.0.0.1:{manager}",
                    environment=environment,
                ),
                "koord-device-daemon": await _running(
                    "device_daemon",
                    daemon,
                    f"--prints-output-file={folder}/devices",
                    f"--host-root={folder}",
                    f"--metrics-addr=127.0.0.1:{daemon}",
                ),
                "koord-runtime-proxy": await _running(
                    "runtime_proxy",
                    proxy,
                    *sockets,
                    f"--hook-server-dir={folder}",
                    f"--metrics-addr=127.0.0.1:{proxy}",
                    path="livez",
                ),
            }


def _configuration(program: str, folder: Path, port: int = 0) -> str:
    """The flag that names the chart's configuration, changed so that the program needs no election, and serves here."""
    name = f"{program}-config"
    installed = yaml.safe_load((ROOT / f"config/config-maps/{name}.yaml").read_text())
    document = yaml.safe_load(installed["data"][name])
    document |= {"leaderElection": {"leaderElect": False}, "enableProfiling": True}
    addresses = [field for field in document if field.endswith("BindAddress")]
    document.update(dict.fromkeys(addresses, f"127.0.0.1:{port}"))
    (folder / name).write_text(yaml.safe_dump(document))
    return f"--config={folder / name}"


async def _running(
    package: str,
    port: int,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    path: str = "readyz",
) -> Running:
    prepared: list[Run] = []
    routes: list[str] = []
    start = HealthServer.start

    async def start_and_remember(server: HealthServer) -> None:
        routes.extend((*server._routes._fixed, *server._routes._with_parameters))
        await start(server)

    main = importlib.import_module(f"koordinator.{package}.main")

    def prepare_only(_: str, prepare: Callable[[], Run]) -> int:
        prepared.append(prepare())
        return 0

    with patch.object(main, "run_program", prepare_only), patch.dict(os.environ, environment or {}):
        main.main(arguments)
    process = Process()
    process.metrics.add_process_metrics()
    process.metrics.add_build_info(package)
    with patch.object(HealthServer, "start", start_and_remember):
        run = asyncio.create_task(prepared[0](process))
        healthy = asyncio.create_task(asyncio.to_thread(_wait_for, f"http://127.0.0.1:{port}/{path}"))
        await asyncio.wait((run, healthy), return_when=asyncio.FIRST_COMPLETED)
    described = _described(process.metrics)
    process.stop.set()
    await run
    await healthy
    return Running(described, routes)


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def main(arguments: Sequence[str]) -> None:
    """Write the page; with ``--print``, print it and what each program serves as JSON."""
    logging.disable()
    running = asyncio.run(run_all())
    if arguments == ["--print"]:
        routes = {name: program.routes for name, program in running.items()}
        json.dump({"page": page(running), "routes": routes}, sys.stdout)
    else:
        write_or_print({PAGE: page(running)}, arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
