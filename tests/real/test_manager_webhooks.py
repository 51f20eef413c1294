"""koord-manager's webhooks against a real API server, beside those of the original."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.annotations import WEBHOOK_TEMPLATE_APPLIED
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import (
    NAMESPACE,
    PROFILES,
    SECRET,
    configurations,
    create,
    gates,
    install,
    prepare,
)
from tests.real.manager_process import OURS, ManagerProcess, manager
from tests.real.programs import RealPrograms

ARGUMENTS = ("--enable-leader-election=false", gates())


@pytest.fixture(scope="module")
def cluster(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of this module's own: webhooks stand in the way of others' tests."""
    with ControlPlane(real_programs.kubernetes, tmp_path_factory.mktemp("control-plane")) as plane:
        prepare(plane)
        yield plane


@pytest.fixture
def original(real_programs: RealPrograms) -> tuple[str]:
    """The command of the original."""
    program = real_programs.original / "koord-manager"
    if not program.is_file():
        pytest.skip(f"the original's koord-manager is absent: put it into {real_programs.original}")
    return (str(program),)


def comparable(found: Mapping[str, dict[str, Any]], port: int) -> dict[str, Any]:
    """What a manager is to decide on: everything but versions, the authority, its own port, and the digest with which
    ours alone finds out what administrators have changed."""
    result = {}
    for name, configuration in found.items():
        text = re.sub(r'"caBundle": "[^"]*"', '"caBundle": "…"', json.dumps(configuration))
        document = json.loads(text.replace(f":{port}/", ":PORT/"))
        metadata = document["metadata"]
        document["metadata"] = {"labels": metadata["labels"], "annotations": dict(metadata["annotations"])}
        document["metadata"]["annotations"].pop(WEBHOOK_TEMPLATE_APPLIED, None)
        template = document["metadata"]["annotations"]["template"]
        document["metadata"]["annotations"]["template"] = json.loads(template)
        result[name] = document
    return result


def served(found: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry for configuration in found.values() for entry in configuration.get("webhooks", [])]


@pytest.mark.parametrize("environment", [{}, {"WEBHOOK_HOST": "", "SERVICE_NAME": "hooks", "PODNAMESPACE": NAMESPACE}])
def test_configurations_become_what_the_original_makes_of_them(
    original: tuple[str], cluster: ControlPlane, tmp_path: Path, environment: dict[str, str]
) -> None:
    results = []
    for command in (original, OURS):
        install(cluster)
        folder = tmp_path / Path(command[0]).name
        with manager(command, cluster.kubeconfig, folder, arguments=ARGUMENTS, environment=environment) as running:
            running.wait_ready()
            results.append(comparable(configurations(cluster), running.webhook_port))
    assert results[1] == results[0]
    assert served(results[1])


def test_a_pod_is_changed_by_the_webhook_that_was_installed(cluster: ControlPlane, tmp_path: Path) -> None:
    install(cluster)
    profile = {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": "batch"},
        "spec": {"selector": {"matchLabels": {"kind": "batch"}}, "qosClass": "LS", "labels": {"seen": "yes"}},
    }
    create(cluster, PROFILES, profile)
    with manager(OURS, cluster.kubeconfig, tmp_path, arguments=ARGUMENTS) as running:
        running.wait_ready()
        status, pod = cluster.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", batch_pod())
        assert status == 201, pod
        assert pod["metadata"]["labels"] == {"kind": "batch", "koordinator.sh/qosClass": "LS", "seen": "yes"}
        assert 'controller_runtime_webhook_requests_total{code="200",webhook="/mutate-pod"} 1.0' in running.metrics()
        assert running.stop() == 0


def batch_pod() -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "labels": {"kind": "batch"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


def authority(cluster: ControlPlane) -> bytes:
    """The one that all configurations name; b"" while they differ, since they are written one after the other."""
    bundles = {entry["clientConfig"]["caBundle"] for entry in served(configurations(cluster))}
    return base64.b64decode(bundles.pop()) if len(bundles) == 1 else b""


def test_either_program_takes_over_the_certificates_of_the_other(
    original: tuple[str], cluster: ControlPlane, tmp_path: Path
) -> None:
    environment = {"WEBHOOK_CERT_WRITER": "secret"}
    for first, second in ((original, OURS), (OURS, original)):
        install(cluster)
        found = []
        for number, command in enumerate((first, second)):
            folder = tmp_path / f"{Path(first[0]).name}-{number}"
            with manager(command, cluster.kubeconfig, folder, arguments=ARGUMENTS, environment=environment) as running:
                running.wait_ready()
                secret = cluster.request("GET", SECRET)[1]
                found.append((secret["metadata"]["resourceVersion"], secret["data"], authority(cluster)))
        assert found[0] == found[1]


def test_two_replicas_agree_and_a_deleted_secret_is_replaced_for_both(cluster: ControlPlane, tmp_path: Path) -> None:
    install(cluster)
    environment = {"WEBHOOK_CERT_WRITER": "secret"}
    with (
        manager(OURS, cluster.kubeconfig, tmp_path / "a", arguments=ARGUMENTS, environment=environment) as first,
        manager(OURS, cluster.kubeconfig, tmp_path / "b", arguments=ARGUMENTS, environment=environment) as second,
    ):
        replicas = (first, second)
        for replica in replicas:
            replica.wait_ready()
        before = agreed(cluster, replicas)
        cluster.request("DELETE", SECRET)
        first.wait(lambda: secret_exists(cluster), "new Secret")
        first.wait(lambda: agreed(cluster, replicas) not in (b"", before), "agreement on the new one")
        for replica in replicas:
            replica.wait_ready()


def secret_exists(cluster: ControlPlane) -> bool:
    return cluster.request("GET", SECRET)[0] == 200


def agreed(cluster: ControlPlane, replicas: tuple[ManagerProcess, ...]) -> bytes:
    """The certificate that all serve, if its authority is the one that API servers trust; b"" otherwise."""
    certificates = {(replica.certificates / "tls.crt").read_bytes() for replica in replicas}
    authorities = {(replica.certificates / "ca-cert.pem").read_bytes() for replica in replicas}
    agree = len(certificates) == len(authorities) == 1 and authorities.pop() in authority(cluster)
    return certificates.pop() if agree else b""


def test_no_pod_is_refused_while_another_authority_takes_over(cluster: ControlPlane, tmp_path: Path) -> None:
    install(cluster)
    environment = {"WEBHOOK_CERT_WRITER": "secret"}
    with manager(OURS, cluster.kubeconfig, tmp_path, arguments=ARGUMENTS, environment=environment) as running:
        running.wait_ready()
        before = (running.certificates / "ca-cert.pem").read_bytes()
        cluster.request("DELETE", SECRET)
        created = 0

        def changed() -> bool:
            nonlocal created
            status, response = cluster.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", batch_pod())
            assert status == 201, response
            created += 1
            return (running.certificates / "ca-cert.pem").read_bytes() != before

        running.wait(changed, "change")
        enough = created + 30
        running.wait(lambda: changed() and created >= enough, "pods after the change")


def test_webhooks_outlive_an_api_server_that_is_away(cluster: ControlPlane, tmp_path: Path) -> None:
    install(cluster)
    arguments = ("--enable-leader-election=true", gates())
    with manager(OURS, cluster.kubeconfig, tmp_path, arguments=arguments) as running:
        running.wait_ready()
        leads = re.compile(r"koordinator_manager_is_leader 1\.0")
        running.wait(lambda: leads.search(running.metrics()) is not None, "lead")
        cluster.kill_api_server()
        running.wait(lambda: leads.search(running.metrics()) is None, "loss of the lead")
        assert running.ready()
        cluster.start_api_server()
        running.wait(lambda: leads.search(running.metrics()) is not None, "lead again")
        status, pod = cluster.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", batch_pod())
        assert status == 201, pod
        assert running.stop() == 0
