from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.cluster.admission_webhooks.webhook_cluster import WebhookCluster
from tests.cluster.admission_webhooks.webhook_server import WebhookServer
from tests.cluster.embedded_thread import embedded_server
from tests.kube.certificates import Authority

_NUMBERS = count()


@pytest.fixture(scope="session")
def webhook_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookServer]:
    """Its certificate is good for its address and for Services called hook."""
    authority = Authority("webhooks")
    serving = authority.write_serving(
        tmp_path_factory.mktemp("serving") / "serving.pem", "127.0.0.1", "hook.default.svc"
    )
    server = WebhookServer(authority, serving)
    yield server
    server.close()


@pytest.fixture(scope="session")
def embedded_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One server for all cases."""
    with embedded_server(tmp_path_factory.mktemp("embedded")) as kubeconfig:
        yield kubeconfig


@pytest.fixture
def cluster(embedded_kubeconfig: Path, webhook_server: WebhookServer) -> Iterator[WebhookCluster]:
    """A namespace of the test's own in the embedded API."""
    cluster = WebhookCluster(embedded_kubeconfig, webhook_server, f"case-{next(_NUMBERS)}")
    yield cluster
    cluster.close()
