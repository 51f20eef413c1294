"""What `helm test` says of a release: its script, run against an API server of a few documents."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.manifests import custom_resource_definitions
from tests.chart.rendered import objects
from tests.waiting import PATIENCE

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases"
_DAEMON_SET = "/apis/apps/v1/namespaces/koordinator-system/daemonsets/koordlet"
_METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics?limit=500"


def script() -> tuple[list[str], dict[str, str]]:
    """The command and the environment of the pod."""
    (container,) = objects("defaults")["Pod", "koordinator-test-release"]["spec"]["containers"]
    return container["command"][1:], {each["name"]: each["value"] for each in container["env"]}


def works() -> dict[str, Any]:
    """Path -> what the API server says where all is well; a Lease is renewed between two requests."""
    documents: dict[str, Any] = {_DAEMON_SET: {"status": {"numberReady": 1}}}
    for name in ("koord-scheduler", "koord-descheduler", "koordinator-manager"):
        documents[f"{_LEASES}/{name}"] = {"spec": {"holderIdentity": f"{name}-0"}}
    for definition in custom_resource_definitions():
        for version in definition["spec"]["versions"]:
            path = f"/apis/{definition['spec']['group']}/{version['name']}"
            served = documents.setdefault(path, {"resources": []})["resources"]
            served.append({"name": definition["spec"]["names"]["plural"]})
    documents[_METRICS] = {"items": [{}, {"status": {"updateTime": "2026-01-01T00:00:00Z"}}]}
    return documents


class Server(ThreadingHTTPServer):
    documents: dict[str, Any]
    stuck: frozenset[str]
    """Leases that are held and never renewed."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    renewals = count()

    def do_GET(self) -> None:
        document = self.server.documents.get(self.path)
        if self.headers["Authorization"] != "Bearer secret":
            self.send_error(401)
        elif document is None:
            self.send_error(404)
        else:
            if self.path.startswith(_LEASES) and self.path not in self.server.stuck:
                document["spec"]["renewTime"] = str(next(self.renewals))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as made:
        made.documents, made.stuck = works(), frozenset()
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def says(server: Server, account: Path, seconds: float) -> tuple[int, list[str]]:
    (account / "token").write_text("secret\n")
    command, environment = script()
    where = {"API": f"http://127.0.0.1:{server.server_port}", "ACCOUNT": str(account)}
    given = {**environment, **where, "SECONDS": str(seconds), "PAUSE": "0"}
    ended = subprocess.run([sys.executable, *command], env=given, capture_output=True, text=True, timeout=PATIENCE)
    return ended.returncode, ended.stdout.splitlines() or [ended.stderr]


def test_a_release_works_whose_programs_lead_and_whose_nodes_report(server: Server, tmp_path: Path) -> None:
    assert says(server, tmp_path, PATIENCE) == (0, ["the release works"])


def test_everything_that_does_not_work_is_named(server: Server, tmp_path: Path) -> None:
    del server.documents[f"{_LEASES}/koord-scheduler"]
    server.stuck = frozenset({f"{_LEASES}/koordinator-manager"})
    server.documents["/apis/analysis.koordinator.sh/v1alpha1"]["resources"].clear()
    server.documents[_METRICS]["items"].pop()
    status, said = says(server, tmp_path, 2.0)
    assert status == 1
    assert said == [
        "no replica holds the Lease koordinator-system/koord-scheduler",
        "koordinator-manager-0 does not renew the Lease koordinator-system/koordinator-manager",
        "analysis.koordinator.sh/v1alpha1/recommendations is not served",
        "koordlet runs, and no NodeMetric has a report",
    ]


def test_where_no_koordlet_runs_none_has_to_report(server: Server, tmp_path: Path) -> None:
    del server.documents[_DAEMON_SET], server.documents[_METRICS]
    assert says(server, tmp_path, PATIENCE)[0] == 0


def test_who_asks_may_ask_for_that_alone_and_is_there_for_the_test_alone() -> None:
    rules = [
        each for kind in ("Role", "ClusterRole") for each in objects("defaults")[kind, "koordinator-test"]["rules"]
    ]
    assert [(each["resources"], each.get("resourceNames"), each["verbs"]) for each in rules] == [
        (["leases"], ["koord-scheduler", "koord-descheduler", "koordinator-manager"], ["get"]),
        (["daemonsets"], ["koordlet"], ["get"]),
        (["nodemetrics"], None, ["list"]),
    ]
    for case in ("defaults", "least"):
        of_test = [each for (_, name), each in objects(case).items() if name.startswith("koordinator-test")]
        assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in of_test} == {"test"}
