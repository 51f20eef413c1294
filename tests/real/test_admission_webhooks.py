"""Admission webhooks on the real kube-apiserver: the cases that the embedded API passes, with the same outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.cluster.admission_webhooks.cases import Case, cases
from tests.cluster.admission_webhooks.webhook_cluster import WebhookCluster
from tests.cluster.admission_webhooks.webhook_server import Document, Reply, WebhookServer, allow
from tests.kube.certificates import Authority
from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms

_NUMBERS = count()


@pytest.fixture(scope="module")
def routing_cluster(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A control plane that finds webhooks by the endpoints of their Services, as the embedded API does."""
    with ControlPlane(
        real_programs.kubernetes,
        tmp_path_factory.mktemp("routing"),
        extra_arguments=("--enable-aggregator-routing=true",),
    ) as plane:
        yield plane.kubeconfig


@pytest.fixture(scope="module")
def webhook_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    authority = Authority("webhooks")
    file = tmp_path_factory.mktemp("serving") / "serving.pem"
    serving = authority.write_serving(file, "127.0.0.1", "hook.default.svc")
    server = WebhookServer(authority, serving)
    yield server
    server.close()


@pytest.fixture
def cluster(routing_cluster: Path, webhook_server: WebhookServer) -> Iterator[WebhookCluster]:
    cluster = WebhookCluster(routing_cluster, webhook_server, f"case-{next(_NUMBERS)}")
    yield cluster
    cluster.close()


@pytest.mark.parametrize("case", cases().values(), ids=cases().keys())
def test_case(cluster: WebhookCluster, case: Case) -> None:
    case(cluster)


@pytest.mark.parametrize(
    ("times", "policy", "timeout", "code"),
    [(1, "Fail", 10, 201), (99, "Ignore", 2, 201), (99, "Fail", 2, 500)],
    ids=["answered at last", "given up, Ignore", "given up, Fail"],
)
def test_a_webhook_that_is_overloaded_is_called_again_until_its_timeout(
    cluster: WebhookCluster, times: int, policy: str, timeout: int, code: int
) -> None:
    """What koord-manager counts on where it refuses admissions with 429 and Retry-After."""

    def behave(review: Document) -> Reply:
        calls = cluster.server.paths().count("/busy")
        return Reply(b"later", 429, "text/plain", retry_after="1") if calls <= times else allow()(review)

    cluster.server.behaviours["/busy"] = behave
    webhook = cluster.webhook("busy.koordinator.test", "/busy", failurePolicy=policy, timeoutSeconds=timeout)
    cluster.register("validating", webhook)
    response = cluster.request("POST", cluster.path("configmaps"), {"metadata": {"name": "created"}})
    assert response.code == code, response.message
    assert cluster.server.paths().count("/busy") == 2
