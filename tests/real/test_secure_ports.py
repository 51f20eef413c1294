"""The doors of the programs on a cluster: who is let in by the real API server, by a token and by a certificate.

Each program is tried with every path that docs/access.md names for it.
"""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.docs.access_page import documented
from tests.free_ports import free_ports
from tests.kube.certificates import Authority
from tests.real.control_plane import ControlPlane
from tests.real.polling import until
from tests.real.programs import RealPrograms

pytestmark = pytest.mark.real

PROGRAMS: Final = {
    "koord-scheduler": ("scheduler", ("--port=0", "--leader-elect=false")),
    "koord-descheduler": ("descheduler", ("--port=0", "--leader-elect=false")),
    "koord-manager": (
        "manager",
        ("--metrics-addr=0", "--health-probe-addr=0", "--enable-pprof=false", "--feature-gates=WebhookFramework=false"),
    ),
    "koordlet": (
        "koordlet",
        (
            "--addr=0",
            "--feature-gates=AuditEvents=true,AuditEventsHTTPHandler=true",
            "--audit-log-dir={folder}/audit",
            "--cgroup-root-dir={folder}/cgroup/",
        ),
    ),
    "koord-device-daemon": (
        "device_daemon",
        ("--metrics-addr=0", "--host-root={folder}", "--prints-output-file={folder}/devices"),
    ),
    "koord-runtime-proxy": (
        "runtime_proxy",
        (
            "--metrics-addr=0",
            "--koord-runtimeproxy-endpoint={folder}/proxy",
            "--remote-runtime-service-endpoint={folder}/none",
            "--hook-server-dir={folder}",
        ),
    ),
}
_OF_THE_NODE_ALONE: Final = ("koord-device-daemon", "koord-runtime-proxy")
"""They have no other question for an API server."""
SECONDS: Final = 60.0
_KINDS: Final = ("authorized", "unauthorized")
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_SCRAPER, _STRANGER, _OPERATOR = "scrapertoken", "strangertoken", "operatortoken"
_USERS: Final = {_SCRAPER: ("scraper", ()), _STRANGER: ("stranger", ()), _OPERATOR: ("operator", ())}


class Door:
    """The secure port of a program, at which somebody knocks."""

    def __init__(self, port: int, folder: Path, clients: Authority) -> None:
        self._port, self._folder, self._clients = port, folder, clients

    def knock(self, path: str, token: str = "", certificate: str = "") -> int:
        """The status for the holder of a token, of a certificate for this name, or for somebody without either; 0
        while nobody answers."""
        context = ssl._create_unverified_context()  # the program has made it for itself
        if certificate:
            pair = [self._folder / f"{certificate}.crt", self._folder / f"{certificate}.key"]
            for file, content in zip(pair, self._clients.issue(certificate), strict=True):
                file.write_bytes(content)
            context.load_cert_chain(pair[0], pair[1])
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"https://127.0.0.1:{self._port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS, context=context) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0


class Cluster:
    def __init__(self, plane: ControlPlane, folder: Path, clients: Authority) -> None:
        self.plane, self._folder, self._clients = plane, folder, clients

    def grant(self) -> None:
        """The user ``scraper`` may get /metrics, and nothing else."""
        self.allow("scraper", "/metrics")

    def allow(self, user: str, *paths: str) -> None:
        """To get these, and nothing else."""
        role = {"metadata": {"name": user}, "rules": [{"nonResourceURLs": paths, "verbs": ["get"]}]}
        binding = {
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
        for kind, document in (("clusterroles", role), ("clusterrolebindings", binding)):
            assert self.plane.request("POST", f"{_RBAC}/{kind}", document)[0] in {201, 409}

    def withdraw(self, user: str = "scraper") -> None:
        for kind in ("clusterrolebindings", "clusterroles"):
            assert self.plane.request("DELETE", f"{_RBAC}/{kind}/{user}")[0] == 200

    @contextmanager
    def door(self, program: str) -> Iterator[Door]:
        """While the program runs."""
        (port,) = free_ports(1)
        module, flags = PROGRAMS[program]
        secure = [f"--secure-port={port}", *(f"--authorization-webhook-cache-{kind}-ttl=100ms" for kind in _KINDS)]
        questions = ("authentication-", "authorization-") if program in _OF_THE_NODE_ALONE else ("",)
        secure += [f"--{question}kubeconfig={self.plane.kubeconfig}" for question in questions]
        own = [flag.format(folder=self._folder) for flag in flags]
        command = [sys.executable, "-m", f"koordinator.{module}", *own, *secure]
        log = self._folder / f"{program}.log"
        given = {**os.environ, "NODE_NAME": "n1"}
        with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file, env=given) as process:
            door = Door(port, self._folder, self._clients)
            try:
                until(lambda: door.knock("/livez") == 200, SECONDS, f"{program}; see {log}")
                yield door
            finally:
                process.terminate()


@pytest.fixture(scope="module")
def cluster(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder, clients = tmp_path_factory.mktemp("doors"), Authority("clients")
    (folder / "cgroup").mkdir()
    (folder / "cgroup/cgroup.controllers").write_text("cpu memory\n")
    (folder / "clients.crt").write_bytes(clients.pem)
    with ControlPlane(
        real_programs.kubernetes,
        folder / "cluster",
        authorization_mode="RBAC",
        tokens=_USERS,
        extra_arguments=(f"--client-ca-file={folder / 'clients.crt'}",),
    ) as plane:
        yield Cluster(plane, folder, clients)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_api_server_says_who_may_see_what(cluster: Cluster, program: str) -> None:
    cluster.grant()
    with cluster.door(program) as door:
        until(lambda: door.knock("/metrics", certificate="scraper") == 200, SECONDS, "the authority of clients")
        assert door.knock("/metrics", certificate="stranger") == 403
        found = {token: door.knock("/metrics", token) for token in (_SCRAPER, _STRANGER, "nonsense", "")}
        assert found == {_SCRAPER: 200, _STRANGER: 403, "nonsense": 401, "": 403}
        assert door.knock("/debug/pprof/", _SCRAPER) == 403
        cluster.withdraw()
        until(lambda: door.knock("/metrics", _SCRAPER) == 403, SECONDS, "the end of the right")


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_path_of_the_table_is_seen_by_whom_the_table_says(cluster: Cluster, program: str) -> None:
    paths = documented()[program]
    closed = [path for path in paths if not path.is_open]
    with cluster.door(program) as door:
        for path in paths:
            # What has no right is not told whether there is such a page.
            without = {token: door.knock(path.example, token) for token in ("", "nonsense", _STRANGER)}
            if path.is_open:
                assert {without[""], without[_STRANGER]} <= {200, 500}, path.text
            else:
                assert without == {"": 403, "nonsense": 401, _STRANGER: 403}, path.text
        cluster.allow("operator", *(path.url for path in closed))
        try:
            until(lambda: door.knock("/metrics", _OPERATOR) == 200, SECONDS, "the right")
            refused = [path.text for path in closed if door.knock(path.example, _OPERATOR) in {401, 403}]
        finally:
            cluster.withdraw("operator")
        assert refused == []
        until(lambda: door.knock("/metrics", _OPERATOR) == 403, SECONDS, "the end of the right")


def test_while_no_api_server_answers_nobody_is_let_in_and_probes_are(cluster: Cluster) -> None:
    cluster.grant()
    with cluster.door("koord-scheduler") as door:
        until(lambda: door.knock("/metrics", _SCRAPER) == 200, SECONDS, "the right")
        cluster.plane.pause_api_server()
        try:
            until(lambda: door.knock("/metrics", _SCRAPER) == 503, SECONDS, "a refusal")
            assert door.knock("/healthz") == 200
        finally:
            cluster.plane.resume_api_server()
        until(lambda: door.knock("/metrics", _SCRAPER) == 200, SECONDS, "the right again")
