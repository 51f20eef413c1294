"""koord-scheduler with the rights of config/rbac and no others: nothing is forbidden, and no right is idle."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.real.audited import NAMESPACE, Audited, audited
from tests.real.manager_cluster import prepare
from tests.real.polling import until_nothing_is_left
from tests.real.programs import RealPrograms
from tests.real.scheduler_configuration import API_VERSION, LOAD_AWARE, write_configuration

CORE = "/api/v1"
PODS = f"{CORE}/namespaces/default/pods"
ELECTION = {"leaderElect": True, "resourceNamespace": NAMESPACE, "resourceName": "koord-scheduler"}
ALONE = {"accessModes": ["ReadWriteOnce"]}
SECONDS = 60.0
_LOOKS = 100
"""Some seconds are between them."""
_QUOTA, _GANG, _RESERVATION = {"name": "ElasticQuota"}, {"name": "Coscheduling"}, {"name": "Reservation"}
_NUMA = {"name": "NodeNUMAResource"}
_DEVICES = {"name": "DeviceShare"}
_REVOKING = {"monitorAllQuotas": True, "delayEvictTime": "0s", "revokePodInterval": "1s"}
_ARGS = {"apiVersion": API_VERSION, "kind": "ElasticQuotaArgs", "quotaGroupNamespace": "default", **_REVOKING}
_LOAD = {"name": "LoadAwareScheduling"}
_ESTIMATING = {
    "apiVersion": API_VERSION,
    "kind": "LoadAwareSchedulingArgs",
    "estimator": "recommendedUsageEstimator",
}
_SOON = {"apiVersion": API_VERSION, "kind": "ReservationArgs", "gcDurationSeconds": 1, "gcIntervalSeconds": 1}
PROFILE = {
    **LOAD_AWARE,
    "plugins": {
        **LOAD_AWARE["plugins"],
        "preEnqueue": {"enabled": [_GANG]},
        "preFilter": {"enabled": [_RESERVATION, _NUMA, _GANG, _DEVICES, _QUOTA]},
        "filter": {"enabled": [*LOAD_AWARE["plugins"]["filter"]["enabled"], _DEVICES]},
        "postFilter": {"enabled": [_RESERVATION, _QUOTA]},
        "permit": {"enabled": [_GANG]},
        "reserve": {"enabled": [*LOAD_AWARE["plugins"]["reserve"]["enabled"], _RESERVATION, _NUMA, _DEVICES, _GANG]},
        "preBind": {"enabled": [_NUMA, _DEVICES, _RESERVATION, _GANG, {"name": "DefaultPreBind"}]},
        "bind": {"disabled": [{"name": "*"}], "enabled": [_RESERVATION, {"name": "DefaultBinder"}]},
        "postBind": {"enabled": [_GANG]},
    },
    "pluginConfig": [
        {**_QUOTA, "args": _ARGS},
        {**_RESERVATION, "args": _SOON},
        {**_LOAD, "args": _ESTIMATING},
    ],
}
QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas"
POD_GROUPS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/podgroups"
RESERVATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
TOPOLOGIES = "/apis/scheduling.koordinator.sh/v1alpha1/clusternetworktopologies"
GPU = {f"koordinator.sh/gpu-{name}": "100" for name in ("core", "memory-ratio")}
LOST_RESPONSES = {("get", "", "pods"), ("get", "scheduling.koordinator.sh", "reservations")}
"""Asked when the response to a binding is lost or says conflict, which tests of faults bring about, and luck here."""


@pytest.fixture
def books(real_programs: RealPrograms, tmp_path: Path) -> Iterator[Audited]:
    with audited(real_programs.kubernetes, tmp_path, "koord-scheduler") as made:
        yield made


@contextmanager
def scheduler(books: Audited, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    configuration = write_configuration(
        folder / "scheduler.yaml",
        leader_election=ELECTION,
        profile=PROFILE,
        podInitialBackoffSeconds=1,
        podMaxBackoffSeconds=1,
    )
    command = [sys.executable, "-m", "koordinator.scheduler", f"--config={configuration}", "--port=0"]
    command += ["--feature-gates=DevicePluginAdaption=true,GenericWorkload=true", "--enable-network-topology-manager"]
    # What fits nowhere is tried again soon, so that its event repeats.
    command.append("--pod-max-in-unschedulable-pods-duration=1s")
    with (folder / "scheduler.log").open("wb") as log:
        process = subprocess.Popen([*command, f"--kubeconfig={books.kubeconfig}"], stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    # Without grace, since no kubelet is there to end it.
    common = {"schedulerName": "koord-scheduler", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"metadata": {"name": name}, "spec": {**common, **spec}}


def give_it_work(books: Audited) -> None:
    create = books.create
    gpus = dict.fromkeys(GPU, "200")
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "12", "koordinator.sh/gpu": "200", **gpus}
    metadata = {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}}
    create(f"{CORE}/nodes", {"metadata": metadata, "status": {"capacity": amounts, "allocatable": amounts}})
    create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "important"}, "value": 1000})
    create_claims(books)
    create(PODS, pod("unimportant", "3"))
    create(PODS, pod("impossible", "100"))
    kind = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota"}
    create(QUOTAS, {**kind, "metadata": {"name": "shrinks"}, "spec": {"max": {"cpu": "1"}}})
    in_quota = pod("revoked", "100m")
    in_quota["metadata"]["labels"] = {"quota.scheduling.koordinator.sh/name": "shrinks"}
    create(PODS, in_quota)
    create(POD_GROUPS, {**kind, "kind": "PodGroup", "metadata": {"name": "gang"}, "spec": {"minMember": 2}})
    for number in range(2):
        member = pod(f"member-{number}", "50m")
        member["metadata"]["labels"] = {"pod-group.scheduling.sigs.k8s.io": "gang"}
        create(PODS, member)
    template = {"spec": {"schedulerName": "koord-scheduler", "containers": pod("", "50m")["spec"]["containers"]}}
    spec = {"template": template, "owners": [{"labelSelector": {"matchLabels": {"a": "b"}}}], "ttl": "2s"}
    kind = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation"}
    create(RESERVATIONS, {**kind, "metadata": {"name": "expires"}, "spec": spec})
    layers = [{"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "ClusterTopologyLayer"}]
    network = {**kind, "kind": "ClusterNetworkTopology", "spec": {"networkTopologySpec": layers}}
    create(TOPOLOGIES, {**network, "metadata": {"name": "default"}})
    give_it_devices(books)
    # A manifest that was saved from a pod that was bound: the record of a Reservation that it did not take is removed.
    saved = pod("saved", "50m")
    saved["metadata"]["annotations"] = {
        "scheduling.koordinator.sh/reservation-allocated": '{"name": "gone", "uid": "6b3f2c1d"}'
    }
    create(PODS, saved)
    for name in ("found", "made"):
        claim = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
        create(PODS, pod(f"with-{name}", "100m", volumes=[claim]))


def give_it_devices(books: Audited) -> None:
    """GPUs of a vendor whose device plugin serves one pod at a time: one for a pod, one for a Reservation."""
    resources = {**GPU, "koordinator.sh/gpu-memory": "16Gi"}
    gpus = [{"type": "gpu", "minor": minor, "health": True, "resources": resources} for minor in range(2)]
    kind = {"apiVersion": "scheduling.koordinator.sh/v1alpha1"}
    metadata = {"name": "n1", "labels": {"node.koordinator.sh/gpu-vendor": "metax"}}
    books.create(DEVICES, {**kind, "kind": "Device", "metadata": metadata, "spec": {"devices": gpus}})
    wants = pod("with-gpu", "50m")
    wants["spec"]["containers"][0]["resources"] = {name: {"cpu": "50m", **GPU} for name in ("requests", "limits")}
    books.create(PODS, wants)
    template = {"spec": {"schedulerName": "koord-scheduler", "containers": wants["spec"]["containers"]}}
    spec = {"template": template, "owners": [{"labelSelector": {"matchLabels": {"a": "b"}}}], "ttl": "0s"}
    books.create(RESERVATIONS, {**kind, "kind": "Reservation", "metadata": {"name": "with-gpu"}, "spec": spec})


def create_claims(books: Audited) -> None:
    """One for which there is a volume on the node, and one for which a volume would be made; both wait for a pod."""
    for name, provisioner in (("found", "kubernetes.io/no-provisioner"), ("made", "example.com/made")):
        kind = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        books.create("/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": name}, **kind})
        claim = {**ALONE, "storageClassName": name, "resources": {"requests": {"storage": "1Gi"}}}
        path = f"{CORE}/namespaces/default/persistentvolumeclaims"
        books.create(path, {"metadata": {"name": name}, "spec": claim})
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}
    volume = {
        **ALONE,
        "storageClassName": "found",
        "capacity": {"storage": "1Gi"},
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
    }
    books.create(f"{CORE}/persistentvolumes", {"metadata": {"name": "disk"}, "spec": volume})
    # No volume controller is there to say so.
    available = {"status": {"phase": "Available"}}
    assert books.plane.request("PATCH", f"{CORE}/persistentvolumes/disk/status", available)[0] == 200


def test_every_right_is_used_and_none_is_missing(books: Audited, tmp_path: Path) -> None:
    prepare(books.plane)
    books.install()
    give_it_work(books)
    log = tmp_path / "scheduler.log"

    def not_bound(name: str) -> str:
        return "" if "nodeName" in books.plane.request("GET", f"{PODS}/{name}")[1].get("spec", {}) else name

    looks = count()

    def idle() -> set[tuple[str, str, str]]:
        left = books.idle() - LOST_RESPONSES
        look = next(looks)
        if left and look % _LOOKS == 0:
            # Its event repeats, unless the first one was written so late that it has the repetition already.
            books.create(PODS, pod(f"impossible-{look}", "100"))
        return left

    with scheduler(books, tmp_path) as process:
        until_nothing_is_left(lambda: not_bound("unimportant"), SECONDS, process, log)
        until_nothing_is_left(lambda: not_bound("revoked"), SECONDS, process, log)
        books.plane.request("PATCH", f"{QUOTAS}/shrinks", {"spec": {"max": {"cpu": "0"}}})
        until_nothing_is_left(lambda: not_bound("member-1"), SECONDS, process, log)
        books.create(PODS, pod("important", "3", priorityClassName="important"))
        until_nothing_is_left(lambda: not_bound("important"), SECONDS, process, log)
        until_nothing_is_left(idle, SECONDS, process, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert books.refused() == []
    assert books.used() - books.granted() == set()
    assert books.granted() - books.used() <= LOST_RESPONSES
