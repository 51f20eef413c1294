"""``koord page`` in a real Chromium over a real API server: the tests of tests/browser, and what a viewer may see."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.chromium import Chromium
from tests.browser.conftest import kubeconfig, opened, shown, window
from tests.browser.served_page import Cluster, koord_page
from tests.browser.shop import objects
from tests.browser.test_use import test_what_users_write_is_text
from tests.browser.test_what_is_shown import (
    listed,
    printed,
    said,
    test_classes_are_those_of_koord_top,
    test_lists_are_those_of_koord_get,
    test_nodes_are_those_of_koord_top,
    test_pending_pods_are_those_of_koord_get_with_what_would_help,
    test_pods_are_those_of_koord_top,
    test_quotas_are_those_of_koord_get,
    test_what_is_explained_is_what_koord_explain_says,
    test_who_suffers_moves_and_holds_a_device,
)
from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms

__all__ = [
    "kubeconfig",
    "listed",
    "opened",
    "printed",
    "said",
    "shown",
    "test_classes_are_those_of_koord_top",
    "test_lists_are_those_of_koord_get",
    "test_nodes_are_those_of_koord_top",
    "test_pending_pods_are_those_of_koord_get_with_what_would_help",
    "test_pods_are_those_of_koord_top",
    "test_quotas_are_those_of_koord_get",
    "test_what_is_explained_is_what_koord_explain_says",
    "test_what_users_write_is_text",
    "test_who_suffers_moves_and_holds_a_device",
    "window",
]


@pytest.fixture(scope="module")
def control_plane(
    window: Chromium, real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """One with roles, and with a user who has none."""
    folder = tmp_path_factory.mktemp("page")
    users = {"nobody-token": ("nobody", ())}
    with ControlPlane(real_programs.kubernetes, folder, authorization_mode="RBAC", tokens=users) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Cluster:
    found = Cluster(control_plane.kubeconfig)
    found.install()
    found.fill(objects())
    return found


def test_a_viewer_sees_which_right_is_missing(window: Chromium, cluster: Cluster) -> None:
    with koord_page(cluster.kubeconfig, "--sign-in") as link:
        window.open(link)
        window.shows("Sign in", "h2")
        window.run("document.querySelector('input[type=password]').focus()")
        window.press("nobody-token", "\ue007")
        window.go("pending")
        window.shows("you lack the right to list pods", ".missing")
        assert "shop/big" not in window.text()


def test_a_lost_api_server_is_said_and_comes_back(
    window: Chromium, cluster: Cluster, control_plane: ControlPlane
) -> None:
    with koord_page(cluster.kubeconfig) as link:
        window.open(link)
        window.shows("live", ".contact")
        control_plane.kill_api_server()
        try:
            window.shows("The API server does not answer", ".contact")
        finally:
            control_plane.start_api_server()
        window.shows("live", ".contact")
