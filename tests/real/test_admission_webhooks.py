"""Admission webhooks on the real kube-apiserver: the cases that the embedded API passes, with the same outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.cluster.admission_webhooks.cases import Case, cases
from tests.cluster.admission_webhooks.webhook_cluster import WebhookCluster
from tests.cluster.admission_webhooks.webhook_server import WebhookServer
from tests.kube.certificates import Authority
from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms

_NUMBERS = count()


@pytest.fixture(scope="module")
def routing_cluster(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A control plane that finds webhooks by the endpoints of their Services, as the embedded API does."""
    plane = ControlPlane(
        real_programs.kubernetes,
        tmp_path_factory.mktemp("routing"),
        extra_arguments=("--enable-aggregator-routing=true",),
    )
    plane.start()
    yield plane.kubeconfig
    plane.stop()


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
