"""koord-manager whose certificates and webhook configurations are spoiled by hand: it puts them right while it runs."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator

import pytest

from koordinator.manager.webhook.certificate_files import AUTHORITY, NAMES
from tests.manager.webhook.installed import MUTATING, VALIDATING, mutating
from tests.real.booked_cluster import Cluster, booked_cluster
from tests.real.manager_cluster import SECRET, configurations, create, gates, install
from tests.real.manager_process import OURS, ManagerProcess, manager
from tests.real.programs import RealPrograms
from tests.real.test_manager_webhooks import batch_pod

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
SHARED = {"WEBHOOK_CERT_WRITER": "secret"}


@pytest.fixture(scope="module")
def cluster(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane of this module's own: it is broken here."""
    with booked_cluster(real_programs, tmp_path_factory.mktemp("faults")) as made:
        yield made


@pytest.fixture(scope="module")
def serving(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagerProcess]:
    """A manager with webhooks, which no test stops: all of them are to end with it as they began."""
    install(cluster.plane)
    arguments = ("--enable-leader-election=false", gates())
    folder = tmp_path_factory.mktemp("serving")
    with manager(OURS, cluster.plane.kubeconfig, folder, arguments=arguments, environment=SHARED) as running:
        running.wait_ready()
        yield running


def pods_are_admitted(cluster: Cluster) -> bool:
    status, _ = cluster.plane.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", batch_pod())
    return status == 201


def spoil_secret(cluster: Cluster, _: ManagerProcess) -> None:
    cluster.request("PATCH", SECRET, {"data": {"cert.pem": "Z2FyYmFnZQ==", "ca-key.pem": ""}})


def empty_secret(cluster: Cluster, _: ManagerProcess) -> None:
    cluster.request("PATCH", SECRET, {"data": None})


def delete_secret(cluster: Cluster, _: ManagerProcess) -> None:
    cluster.request("DELETE", SECRET)


def delete_files(_: Cluster, running: ManagerProcess) -> None:
    for path in running.certificates.iterdir():
        if path.is_symlink():
            path.unlink()


def spoil_files(_: Cluster, running: ManagerProcess) -> None:
    path = running.certificates / "tls.crt"
    path.unlink()
    path.write_text("garbage")


def spoil_authority(cluster: Cluster, _: ManagerProcess) -> None:
    """As somebody does who applies the manifests of another installation."""
    for name, plural in (
        (MUTATING, "mutatingwebhookconfigurations"),
        (VALIDATING, "validatingwebhookconfigurations"),
    ):
        found = cluster.request("GET", f"{REGISTRATION}/{plural}/{name}")
        for entry in found["webhooks"]:
            entry["clientConfig"]["caBundle"] = "Z2FyYmFnZQ=="
        cluster.plane.request("PUT", f"{REGISTRATION}/{plural}/{name}", found)


def delete_configurations(cluster: Cluster, _: ManagerProcess) -> None:
    """And the Secret, by which they are installed anew as manifests have them."""
    install(cluster.plane)


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_secret,
        empty_secret,
        delete_secret,
        delete_files,
        spoil_files,
        spoil_authority,
        delete_configurations,
    ],
)
def test_what_was_spoiled_by_hand_is_put_right(
    cluster: Cluster, serving: ManagerProcess, spoil: Callable[[Cluster, ManagerProcess], None]
) -> None:
    assert is_in_line(cluster, serving)
    spoil(cluster, serving)
    assert not is_in_line(cluster, serving)
    since = time.monotonic()
    # Nobody tells of files, which are looked at every minute.
    serving.wait(lambda: is_in_line(cluster, serving) or time.monotonic() > since + 30, "patience")
    serving.wait(lambda: is_in_line(cluster, serving), "certificates and configurations that fit")
    serving.wait(serving.ready, "readiness")
    serving.wait(lambda: pods_are_admitted(cluster), "admission")


def is_in_line(cluster: Cluster, serving: ManagerProcess) -> bool:
    """The files hold what the Secret holds, and every entry names this process and the authority of both."""
    try:
        held = {name: (serving.certificates / name).read_bytes() for name in NAMES}
    except OSError:
        return False
    secret = cluster.plane.request("GET", SECRET)[1].get("data") or {}
    if {name: base64.b64decode(text) for name, text in secret.items()} != held:
        return False
    entries = [each for found in configurations(cluster.plane).values() for each in found.get("webhooks", [])]
    clients = [entry["clientConfig"] for entry in entries]
    return bool(clients) and all(
        f":{serving.webhook_port}/" in client.get("url", "")
        and held[AUTHORITY] in base64.b64decode(client.get("caBundle", ""))
        for client in clients
    )


def test_a_configuration_that_is_missing_is_named_until_it_is_there_again(
    cluster: Cluster, serving: ManagerProcess
) -> None:
    cluster.request("DELETE", f"{REGISTRATION}/mutatingwebhookconfigurations/{MUTATING}")
    said = f"MutatingWebhookConfiguration {MUTATING} does not exist: koord manifests --only webhook"
    serving.wait(lambda: said in serving.log.read_text(), "warning")
    assert serving.ready(), "the other configuration is served as before"
    create(cluster.plane, f"{REGISTRATION}/mutatingwebhookconfigurations", mutating())
    serving.wait(lambda: is_in_line(cluster, serving), "configuration")
    serving.wait(lambda: pods_are_admitted(cluster), "admission")
