"""The endpoints of Services, with our controllers and with the real ones: the same pods are listed in the same way."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.admission_webhooks.api_server import ApiServer
from tests.cluster.embedded_thread import embedded_server
from tests.real.controller_manager import controller_manager, our_controllers
from tests.real.polling import until
from tests.real.programs import RealPrograms

Document = dict[str, Any]

_SECONDS: Final = 60.0
_NAMES: Final = ("endpoints-controller", "endpointslice-controller", "endpointslice-mirroring-controller")
_PODS: Final = "/api/v1/namespaces/default/pods"
_TRIGGER: Final = "endpoints.kubernetes.io/last-change-trigger-time"

# Name -> address, is it ready, is it being deleted, its phase, its container's port http.
_POD_CASES: Final = {
    "ready": ("10.1.0.1", True, False, "Running", 8080),
    "named": ("10.1.0.2", True, False, "Running", 8080),
    "unready": ("10.1.0.3", False, False, "Running", 8081),
    "going": ("10.1.0.4", True, True, "Running", 8080),
    "done": ("10.1.0.5", False, False, "Succeeded", 8080),
    "new": ("", False, False, "Pending", 8080),
    "six": ("fd00::6", True, False, "Running", 8080),
}
_HTTP: Final = {"name": "http", "port": 80, "targetPort": "http", "appProtocol": "http"}
_SELECTOR: Final = {"app": "web"}
_SERVICES: Final[dict[str, Document]] = {
    "web": {"selector": _SELECTOR, "ports": [_HTTP, {"name": "other", "port": 81, "targetPort": 9000}]},
    "published": {"selector": _SELECTOR, "publishNotReadyAddresses": True, "ports": [{"port": 80}]},
    "headless": {"selector": _SELECTOR, "clusterIP": "None"},
    "empty": {"selector": {"app": "nobody"}, "ports": [{"port": 80}]},
    "dns": {"selector": _SELECTOR, "ports": [{"name": "dns", "port": 53, "protocol": "UDP", "targetPort": "dns"}]},
    "manual": {"ports": [{"port": 80}]},
    "outside": {"type": "ExternalName", "externalName": "a.example", "selector": _SELECTOR},
}

_LISTS: Final = {"web": 3, "published": 2, "headless": 2, "empty": 2, "dns": 2, "manual": 4, "outside": 0}
"""So many Endpoints and EndpointSlices each Service has: one slice for all pods whose ports are the same."""
_MANUAL: Final[Document] = {
    "metadata": {
        "name": "manual",
        "labels": {"team": "manual"},
        "annotations": {"note": "x", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
    },
    "subsets": [
        {
            "addresses": [{"ip": "10.9.0.1", "hostname": "h", "nodeName": "n"}, {"ip": "fd00::9"}],
            "notReadyAddresses": [{"ip": "10.9.0.2"}],
            "ports": [{"name": "http", "port": 80, "appProtocol": "http"}],
        },
        {"addresses": [{"ip": "10.9.0.1"}], "ports": [{"name": "other", "port": 81, "protocol": "UDP"}]},
        {"addresses": [{"ip": "10.9.0.3"}], "ports": [{"name": "http", "port": 80, "appProtocol": "http"}]},
    ],
}
"""Of the Service without a selector; what offers the same ports belongs together, however it is written."""


def test_the_same_pods_are_listed_in_the_same_way(real_programs: RealPrograms, tmp_path: Path) -> None:
    program = real_programs.kubernetes / "kube-controller-manager"
    if not program.is_file():
        pytest.skip(f"{program} is absent")
    real = _lists(tmp_path / "real", lambda kube, log: controller_manager(program, kube, log, _NAMES))
    ours = _lists(tmp_path / "ours", lambda kube, log: our_controllers(kube, log, _NAMES))
    for name in _SERVICES:
        assert ours[name] == real[name], name


def _lists(folder: Path, control: Callable[[Path, Path], AbstractContextManager[None]]) -> dict[str, list[Document]]:
    """Of each Service, what lists its pods, in an order of its own."""
    folder.mkdir()
    with embedded_server(folder) as kubeconfig:
        server = ApiServer(kubeconfig)
        _prepare(server)
        with control(kubeconfig, folder / "log"):
            until(lambda: {name: len(_found(server, name)) for name in _LISTS} == _LISTS, _SECONDS, "all lists")
            return {name: sorted(map(_comparable, _found(server, name)), key=str) for name in _SERVICES}


def _found(server: ApiServer, service: str) -> list[Document]:
    selector = f"labelSelector=kubernetes.io/service-name={service}"
    slices = server.request("GET", f"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?{selector}").body
    endpoints = server.request("GET", f"/api/v1/namespaces/default/endpoints/{service}")
    return [*slices["items"], *([endpoints.body] if endpoints.code == 200 else [])]


def _comparable(found: Document) -> Document:
    """Without identities and times; of lists without an order, sorted."""
    metadata = found["metadata"]
    kept: Document = {"labels": metadata.get("labels"), "owners": []}
    for owner in metadata.get("ownerReferences") or ():
        kept["owners"].append({**owner, "uid": ""})
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != _TRIGGER}
    lists = {name: _sorted(found.get(name)) for name in ("subsets", "endpoints", "ports")}
    return {**kept, "annotations": annotations, "addressType": found.get("addressType"), **lists}


def _sorted(value: Any) -> Any:
    if isinstance(value, list):
        return sorted((_sorted(each) for each in value), key=str)
    if isinstance(value, dict):
        return {key: _sorted(each) for key, each in sorted(value.items()) if key != "uid"}
    return value


def _prepare(server: ApiServer) -> None:
    zone = {"topology.kubernetes.io/zone": "z"}
    _create(server, "/api/v1/nodes", {"metadata": {"name": "n", "labels": zone}})
    for name, (address, ready, going, phase, port) in _POD_CASES.items():
        ports = [{"name": "http", "containerPort": port}]
        spec: Document = {"nodeName": "n", "containers": [{"name": "c", "image": "i", "ports": ports}]}
        if name == "named":
            spec |= {"hostname": "h", "subdomain": "web"}
        finalizers = ["example.com/kept"] if going else []
        _create(
            server, _PODS, {"metadata": {"name": name, "labels": _SELECTOR, "finalizers": finalizers}, "spec": spec}
        )
        addresses = {"podIP": address, "podIPs": [{"ip": address}]} if address else {}
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}], **addresses}
        assert server.request("PATCH", f"{_PODS}/{name}/status", {"status": status}).code == 200
        if going:
            assert server.request("DELETE", f"{_PODS}/{name}", {"gracePeriodSeconds": 30}).code == 200
    for name, spec in _SERVICES.items():
        body = {"metadata": {"name": name, "labels": {"team": name}}, "spec": spec}
        _create(server, "/api/v1/namespaces/default/services", body)
    _create(server, "/api/v1/namespaces/default/endpoints", _MANUAL)


def _create(server: ApiServer, path: str, body: Document) -> None:
    made = server.request("POST", path, body)
    assert made.code == 201, made.message
