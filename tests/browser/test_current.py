"""What is shown is current, and where it is not, the page says so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordinator.api.kinds import PODS
from koordinator.cluster.access.authorizer import AuthorizationMode
from koordinator.cluster.access.identity import authenticated
from koordinator.cluster.server import ServerOptions
from tests.browser.chromium import Chromium
from tests.browser.served_page import Cluster, embedded_cluster, koord_page
from tests.browser.shop import objects, pod
from tests.free_ports import free_ports
from tests.real.severed_connection import Connection


def test_a_change_is_shown_at_once(shown: Chromium, cluster: Cluster) -> None:
    shown.go("pending")
    shown.shows("shop/big")
    cluster.fill([(PODS, pod("late", "", 9500, "0/3 nodes are available: 3 Too many pods.", cpu="1"))])
    begun = time.monotonic()
    shown.shows("shop/late")
    # Two seconds on a machine with nothing else to do.
    assert time.monotonic() - begun < 20


def test_a_lost_server_of_the_page_is_said(window: Chromium, cluster: Cluster) -> None:
    with koord_page(cluster.kubeconfig) as link:
        window.open(link)
        window.shows("live", ".contact")
    window.shows("The server of this page is lost since", ".contact")
    window.shows("Who has what")


def test_a_lost_api_server_is_said_and_comes_back(window: Chromium, cluster: Cluster, tmp_path: Path) -> None:
    server = cluster.kubeconfig.read_text()
    (port,) = {word.rpartition(":")[2].strip("\"',/") for word in server.split() if "127.0.0.1:" in word}
    way = Connection(int(port))
    (tmp_path / "kubeconfig").write_text(server.replace(f":{port}", f":{way.port}"))
    with koord_page(tmp_path / "kubeconfig") as link:
        window.open(link)
        window.shows("live", ".contact")
        way.cut()
        window.shows("The API server does not answer: what you see is from before.", ".contact")
        window.go("nodes")
        window.shows("node-2")
        way.mend()
        window.shows("live", ".contact")
    way.cut()


@pytest.fixture(scope="module")
def guarded(window: Chromium, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with roles, and a user who has none."""
    options = ServerOptions(
        authorization_mode=AuthorizationMode.RBAC, users={"nobody-token": authenticated("nobody", ())}
    )
    with embedded_cluster(tmp_path_factory.mktemp("guarded"), options) as found:
        found.fill(objects())
        yield found


def test_a_viewer_signs_in_sees_which_right_is_missing_and_outlives_the_server(
    window: Chromium, guarded: Cluster
) -> None:
    (port,) = free_ports(1)
    words = ("--sign-in", f"--page-port={port}")
    with koord_page(guarded.kubeconfig, *words) as link:
        window.open(link)
        window.shows("Sign in", "h2")
        window.run("document.querySelector('input[type=password]').focus()")
        window.press("nobody-token", "\ue007")
        window.shows("live", ".contact")
        window.go("nodes")
        window.shows(
            "you lack the right to list nodes and to list pods and to list nodemetrics.slo.koordinator.sh", ".missing"
        )
        window.go("pending")
        window.shows("you lack the right to list pods", ".missing")
        assert "shop/big" not in window.text()
        for place in ("overview", "nodes", "pending", "tenants", "interference", "moves", "devices"):
            window.go(place)
            window.until(lambda: window.count(".missing"))
            assert "koord manifests" not in window.text(), place
    window.shows("The server of this page is lost since", ".contact")
    with koord_page(guarded.kubeconfig, *words):
        window.shows("live", ".contact")
