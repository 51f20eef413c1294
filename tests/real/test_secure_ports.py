"""The doors of the programs on a cluster: who is let in by the real API server, by a token and by a certificate."""

from __future__ import annotations

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

from tests.free_ports import free_ports
from tests.kube.certificates import Authority
from tests.real.control_plane import ControlPlane
from tests.real.polling import until
from tests.real.programs import RealPrograms

pytestmark = pytest.mark.real

PROGRAMS: Final = {
    "koord-scheduler": ("koordinator.scheduler", ("--port=0", "--leader-elect=false")),
    "koord-descheduler": ("koordinator.descheduler", ("--port=0", "--leader-elect=false")),
    "koord-manager": (
        "koordinator.manager",
        ("--metrics-addr=0", "--health-probe-addr=0", "--enable-pprof=false", "--feature-gates=WebhookFramework=false"),
    ),
}
SECONDS: Final = 60.0
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_SCRAPER, _STRANGER = "scrapertoken", "strangertoken"
_USERS: Final = {_SCRAPER: ("scraper", ()), _STRANGER: ("stranger", ())}
_ROLE: Final = {
    "metadata": {"name": "metrics-reader"},
    "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
}
_BINDING: Final = {
    "metadata": {"name": "metrics-reader"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "metrics-reader"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "scraper"}],
}


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
        for kind, document in (("clusterroles", _ROLE), ("clusterrolebindings", _BINDING)):
            assert self.plane.request("POST", f"{_RBAC}/{kind}", document)[0] in {201, 409}

    def withdraw(self) -> None:
        assert self.plane.request("DELETE", f"{_RBAC}/clusterrolebindings/metrics-reader")[0] == 200

    @contextmanager
    def door(self, program: str) -> Iterator[Door]:
        """While the program runs."""
        (port,) = free_ports(1)
        module, flags = PROGRAMS[program]
        secure = (f"--secure-port={port}", "--authorization-webhook-cache-authorized-ttl=100ms")
        command = [sys.executable, "-m", module, f"--kubeconfig={self.plane.kubeconfig}", *flags, *secure]
        log = self._folder / f"{program}.log"
        with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
            door = Door(port, self._folder, self._clients)
            try:
                until(lambda: door.knock("/healthz") == 200, SECONDS, f"{program}; see {log}")
                yield door
            finally:
                process.terminate()


@pytest.fixture(scope="module")
def cluster(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder, clients = tmp_path_factory.mktemp("doors"), Authority("clients")
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
