"""What a kubelet may do, by the Node authorizer and NodeRestriction of a real kube-apiserver and by ours."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import pytest
import yaml

from koordinator.cluster.access.authorizer import AuthorizationMode
from koordinator.cluster.server import ServerOptions
from tests.cluster.access.node_cases import CASES, OBJECTS, Case
from tests.cluster.embedded_thread import embedded_server
from tests.real.administrator import Administrator
from tests.real.control_plane import TOKEN, ControlPlane
from tests.real.programs import RealPrograms

_PATIENCE: Final = 20.0
"""Seconds. The graph of the real server learns of an object a moment after it was written."""
_UID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Servers(NamedTuple):
    real: Administrator
    ours: Administrator


@pytest.fixture(scope="module")
def servers(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("nodes")
    plane = ControlPlane(
        real_programs.kubernetes,
        folder / "cluster",
        authorization_mode="Node,RBAC",
        extra_arguments=("--enable-admission-plugins=NodeRestriction",),
    )
    options = ServerOptions(authorization_mode=AuthorizationMode.NODE_RBAC)
    with plane, embedded_server(folder, options) as kubeconfig:
        document = yaml.safe_load(kubeconfig.read_text())
        port = urlsplit(document["clusters"][0]["cluster"]["server"]).port
        assert port is not None
        found = Servers(Administrator(plane.port, TOKEN), Administrator(port, document["users"][0]["user"]["token"]))
        for server in found:
            for path, body in OBJECTS:
                code, made = server.request("POST", path, body)
                assert code == 201, (path, made)
        yield found
        for server in found:
            server.close()


def _response(server: Administrator, case: Case) -> tuple[int, Any]:
    code, body = server.request(case.method, case.path, case.body, user=case.user, group=case.group)
    message = body.get("message") if code >= 300 else ""
    return code, _UID.sub("UID", message or "")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kubelets_are_refused_the_same(servers: Servers, case: Case) -> None:
    expected, found = _response(servers.real, case), _response(servers.ours, case)
    deadline = time.monotonic() + _PATIENCE
    while expected != found and expected[0] == 403 and time.monotonic() < deadline:
        time.sleep(0.2)
        expected = _response(servers.real, case)
    assert found == expected
