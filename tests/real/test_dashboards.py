"""Every panel and alert with a real Prometheus: a day of the demonstration has data for each panel, and each alert
fires when it should and not otherwise."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
import yaml

from koordinator.api.manifests.monitoring import DASHBOARDS
from koordinator.api.manifests.monitoring.alerts import ALERTS, Alert
from koordinator.api.manifests.monitoring.dashboards import Panel
from koordinator.base.clock import SystemClock
from koordinator.cli.page.history import Span
from koordinator.cli.page.prometheus_history import PrometheusHistory
from koordinator.kube.prometheus import PrometheusServer
from tests.free_ports import free_ports
from tests.real.alert_cases import CASES
from tests.real.polling import until

pytestmark = pytest.mark.real
ROOT: Final = Path(__file__).parents[2]
_RECORDED: Final = ROOT / "tests/koordlet/recorded"
_VALUES: Final = {
    "$__rate_interval": "20s",
    "$__range_s": "120",
    "$__range": "2m",
    "$price": "0.03",
    "$job": ".+",
    "$quota": ".+",
    "$node": ".+",
}
"""Of what Grafana puts in the place of its variables."""
_PANELS: Final = [(dashboard.name, panel) for dashboard in DASHBOARDS for panel in dashboard.panels]


@dataclass(frozen=True)
class Day:
    """A played day: where its Prometheus is, and from when to when it was, in seconds since 1970."""

    address: str
    start: float
    end: float

    def has_data(self, expression: str) -> bool:
        """Whether there is a number at some moment of the day."""
        for variable, value in _VALUES.items():
            expression = expression.replace(variable, value)
        parameters = {"query": expression, "start": self.start, "end": self.end, "step": 2}
        url = f"{self.address}/api/v1/query_range?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as response:
            found = json.load(response)["data"]["result"]
        return any(value != "NaN" for series in found for _, value in series["values"])


@pytest.fixture(scope="module", name="day")
def _day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    if shutil.which("prometheus") is None:
        pytest.skip("it needs prometheus: apt-get install prometheus")
    folder = tmp_path_factory.mktemp("day")
    start = time.time()
    command = [sys.executable, "-m", "koordinator.cli.main", "demo", f"--data={folder / 'cluster'}"]
    with (
        ExitStack() as stack,
        (folder / "demo.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as demo,
    ):
        stack.callback(demo.terminate)
        targets = {"koordlet": stack.enter_context(_recorded_koordlet(folder))}
        for program in ("scheduler", "manager", "descheduler"):
            file = folder / "cluster" / f"{program}-address"
            until(file.exists, 120, str(file))
            targets[f"koord-{program}"] = file.read_text().strip().removeprefix("http://")
        address = stack.enter_context(_prometheus(folder, targets))
        assert demo.wait(600) == 0, (folder / "demo.log").read_text()
        yield Day(address, start, time.time())


@contextmanager
def _recorded_koordlet(folder: Path) -> Iterator[str]:
    """What koordlet says of a real node with cgroup v2, as tests/koordlet records it."""
    served = folder / "koordlet"
    served.mkdir()
    shutil.copy(_RECORDED / "metrics_v2.txt", served / "metrics")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(served))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    """A line for each scrape would be all that the test prints."""

    def log_message(self, *arguments: Any) -> None:
        pass

    def guess_type(self, path: Any) -> str:
        return "text/plain; version=0.0.4"


@contextmanager
def _prometheus(folder: Path, targets: dict[str, str]) -> Iterator[str]:
    (port,) = free_ports(1)
    scraped = [{"job_name": name, "static_configs": [{"targets": [at]}]} for name, at in targets.items()]
    configuration = {"global": {"scrape_interval": "2s", "scrape_timeout": "2s"}, "scrape_configs": scraped}
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'samples'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    log = folder / "prometheus.log"
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            until(lambda: b"ready to receive" in log.read_bytes(), 60, "Prometheus")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@pytest.mark.parametrize(("dashboard", "panel"), _PANELS, ids=[f"{name}: {panel.title}" for name, panel in _PANELS])
def test_a_panel_has_data_of_a_day(day: Day, dashboard: str, panel: Panel) -> None:
    """What needs more than one machine has to be a query all the same: Prometheus refuses others with status 400."""
    found = [day.has_data(query.expression) for query in panel.queries]
    assert any(found) or panel.needs, f"{dashboard}: {panel.title}"


def test_panels_of_real_nodes_have_data_of_a_recorded_koordlet(day: Day) -> None:
    of_nodes = [panel for _, panel in _PANELS if panel.needs.startswith("koordlet on a real node")]
    empty = [panel.title for panel in of_nodes if not any(day.has_data(each.expression) for each in panel.queries)]
    # Nothing is suppressed in the recording, whose koordlet is no process either.
    assert set(empty) <= {"CPU that best-effort pods may use", "CPU of the dearest koordlets"}


def test_the_page_reads_the_day(day: Day) -> None:
    server = PrometheusServer(day.address, SystemClock())
    found = asyncio.run(PrometheusHistory(server).read(Span(int(day.end - day.start) + 10, 5), day.end))
    assert len(found["times"]) > 3
    for name in ("online_allocated", "online_measured", "batch_measured", "batch_reclaimable"):
        assert max(value for value in found["series"][name] if value is not None) > 1000, name


@pytest.fixture(name="promtool")
def _promtool() -> str:
    if shutil.which("promtool") is None:
        pytest.skip("it needs promtool: apt-get install prometheus")
    return "promtool"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_file_of_rules(promtool: str) -> None:
    _run([promtool, "check", "rules", str(ROOT / "charts/koordinator/alerts.yaml")])


@pytest.mark.parametrize("alert", ALERTS, ids=[alert.name for alert in ALERTS])
def test_an_alert_fires_when_it_should_and_not_otherwise(promtool: str, alert: Alert, tmp_path: Path) -> None:
    case = CASES[alert.name]
    expected = [
        {"exp_labels": {"severity": alert.severity, **labels}, "exp_annotations": _said(alert, case.summary)}
        for labels in case.labels
    ]
    tests = [
        {
            "interval": "1m",
            "input_series": _input(series),
            "alert_rule_test": [{"eval_time": "3h", "alertname": alert.name, "exp_alerts": fired}],
        }
        for series, fired in ((case.fires, expected), (case.quiet, []))
    ]
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ROOT / "charts/koordinator/alerts.yaml")], "tests": tests}))
    _run([promtool, "test", "rules", str(file)])


def _input(series: dict[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in series.items()]


def _said(alert: Alert, summary: str) -> dict[str, str]:
    assert not re.search(r"\{\{", summary)
    return {
        "summary": summary,
        "description": alert.meaning,
        "runbook": f"docs/runbooks.md#{alert.name.lower()}",
    }
