"""Claims and volumes have the same fate under our controllers on the embedded API and under the real ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.admission_webhooks.api_server import ApiServer
from tests.cluster.embedded_thread import embedded_server
from tests.real.control_plane import ControlPlane
from tests.real.polling import until
from tests.real.programs import RealPrograms
from tests.real.test_volumes import program

Document = dict[str, Any]
_CONTROLLERS = ",".join(
    (
        "persistentvolume-binder-controller",
        "persistentvolumeclaim-protection-controller",
        "persistentvolume-protection-controller",
    )
)
_WAIT_SECONDS = 40.0
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_VOLUMES = "/api/v1/persistentvolumes"
_CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
_HOST: Document = {"hostPath": {"path": "/data"}}
_NFS: Document = {"nfs": {"server": "a", "path": "/x"}}
_ISCSI: Document = {"iscsi": {"targetPortal": "a", "iqn": "iqn.2001-04.com.example:x", "lun": 0}}


def _volume(size: str, *modes: str, class_name: str = "manual", policy: str = "Retain", **source: Any) -> Document:
    return {
        "capacity": {"storage": size},
        "accessModes": list(modes or ("ReadWriteOnce",)),
        "storageClassName": class_name,
        "persistentVolumeReclaimPolicy": policy,
        **(source or _HOST),
    }


def _claim(size: str, *modes: str, class_name: str | None = "manual", **spec: Any) -> Document:
    requests = {"requests": {"storage": size}}
    named = {} if class_name is None else {"storageClassName": class_name}
    return {"accessModes": list(modes or ("ReadWriteOnce",)), "resources": requests, **named, **spec}


CLASSES = {
    "none": {"provisioner": "kubernetes.io/no-provisioner"},
    "wait": {"provisioner": "example.com/wait", "volumeBindingMode": "WaitForFirstConsumer"},
    "external": {"provisioner": "example.com/external"},
}
VOLUMES = {
    "big": _volume("10Gi"),
    "small": _volume("2Gi"),
    "both": _volume("1Gi", "ReadWriteOnce", "ReadOnlyMany"),
    "deleted": _volume("2Gi", class_name="deleted", policy="Delete", **_NFS),
    "recycled": _volume("2Gi", class_name="recycled", policy="Recycle", **_ISCSI),
    "kept": _volume("1Gi", class_name="", claimRef={"namespace": "default", "name": "prebound"}, **_HOST),
    "free": _volume("1Gi", class_name="free"),
    "waiting": _volume("1Gi", class_name="wait"),
}
CLAIMS = {
    "first": _claim("1Gi"),
    "larger": _claim("5Gi"),
    "too-large": _claim("20Gi"),
    "no-class": _claim("1Gi", class_name=None),
    "absent-class": _claim("1Gi", class_name="absent"),
    "no-provisioner": _claim("1Gi", class_name="none"),
    "consumer": _claim("1Gi", class_name="wait"),
    "outside": _claim("1Gi", class_name="external"),
    "of-deleted": _claim("1Gi", class_name="deleted"),
    "of-recycled": _claim("1Gi", class_name="recycled"),
    "prebound": _claim("1Gi", class_name=""),
    "names-none": _claim("1Gi", class_name="", volumeName="absent"),
    "names-small": _claim("5Gi", class_name="free", volumeName="free"),
}
RELEASED = ("first", "of-deleted", "of-recycled")


@contextmanager
def _real(programs: RealPrograms, folder: Path) -> Iterator[ApiServer]:
    plane = ControlPlane(programs.kubernetes, folder / "plane")
    with ExitStack() as stack:
        stack.enter_context(plane)
        manager = str(programs.kubernetes / "kube-controller-manager")
        arguments = [f"--kubeconfig={plane.kubeconfig}", f"--controllers={_CONTROLLERS}"]
        more = ["--leader-elect=false", "--secure-port=0", "--pvclaimbinder-sync-period=1s"]
        stack.enter_context(program(folder, manager, *arguments, *more))
        yield ApiServer(plane.kubeconfig)


@contextmanager
def _ours(programs: RealPrograms, folder: Path) -> Iterator[ApiServer]:
    with embedded_server(folder) as kubeconfig:
        arguments = [f"--kubeconfig={kubeconfig}", f"--controllers={_CONTROLLERS}"]
        with program(folder, sys.executable, "-m", "koordinator.cluster.controllers", *arguments):
            yield ApiServer(kubeconfig)


def _create(server: ApiServer, path: str, name: str, spec: Document) -> None:
    made = server.request("POST", path, {"metadata": {"name": name}, **spec})
    assert made.code == 201, made.message


def _phases(server: ApiServer, path: str) -> dict[str, tuple[Any, ...]]:
    """Name -> phase, message, what it is bound to, and the protection."""
    found = server.request("GET", path).body["items"]
    return {
        item["metadata"]["name"]: (
            item["status"].get("phase"),
            item["status"].get("message"),
            item["spec"].get("volumeName") or (item["spec"].get("claimRef") or {}).get("name"),
            item["metadata"].get("finalizers"),
        )
        for item in found
    }


def _events(server: ApiServer) -> set[tuple[str, str, str, str]]:
    found = server.request("GET", "/api/v1/namespaces/default/events").body["items"]
    return {(each["involvedObject"]["name"], each["type"], each["reason"], each["message"]) for each in found}


def _played(server: ApiServer) -> Document:
    """What has become of everything, before and after some claims are deleted."""
    for name, body in CLASSES.items():
        _create(server, _CLASSES, name, body)
    for name, spec in VOLUMES.items():
        _create(server, _VOLUMES, name, {"spec": spec})
    available = ("Available", None)
    until(lambda: all(found[:2] == available for found in _phases(server, _VOLUMES).values()), _WAIT_SECONDS, "volumes")
    for name, spec in CLAIMS.items():
        _create(server, _CLAIMS, name, {"spec": spec})
    bound = ("first", "larger", "of-deleted", "of-recycled", "prebound")
    until(lambda: all(_phases(server, _CLAIMS)[each][0] == "Bound" for each in bound), _WAIT_SECONDS, "claims")
    until(lambda: all(found[3] for found in _phases(server, _CLAIMS).values()), _WAIT_SECONDS, "protection")
    until(lambda: len({event[0] for event in _events(server)}) >= 7, _WAIT_SECONDS, "events")
    before = _phases(server, _CLAIMS), _phases(server, _VOLUMES)
    for name in RELEASED:
        assert server.request("DELETE", f"{_CLAIMS}/{name}").code == 200
    failed = {"deleted", "recycled"}
    until(lambda: all(_phases(server, _VOLUMES)[each][0] == "Failed" for each in failed), _WAIT_SECONDS, "failures")
    until(lambda: _phases(server, _VOLUMES)["small"][0] == "Released", _WAIT_SECONDS, "the release")
    until(lambda: failed <= {event[0] for event in _events(server)}, _WAIT_SECONDS, "the events of failures")
    return {"before": before, "after": (_phases(server, _CLAIMS), _phases(server, _VOLUMES)), "events": _events(server)}


@pytest.fixture(scope="module")
def outcomes(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> tuple[Document, Document]:
    """Of the real programs, and of ours."""
    found = []
    for make in (_real, _ours):
        with make(real_programs, tmp_path_factory.mktemp("volumes")) as server:
            found.append(_played(server))
    return found[0], found[1]


@pytest.mark.parametrize("what", ["before", "after", "events"])
def test_claims_and_volumes_are_treated_alike(outcomes: tuple[Document, Document], what: str) -> None:
    real, ours = outcomes
    assert ours[what] == real[what]
