"""What the tests of a module share: a window, a cluster with something in it, and the page of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.chromium import Chromium, chromium
from tests.browser.served_page import Cluster, embedded_cluster, koord_page
from tests.browser.shop import objects


@pytest.fixture(scope="session")
def window() -> Iterator[Chromium]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def cluster(window: Chromium, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The window is named first: without Chromium, nothing is started."""
    with embedded_cluster(tmp_path_factory.mktemp("cluster")) as found:
        found.fill(objects())
        yield found


@pytest.fixture(scope="module")
def opened(window: Chromium, cluster: Cluster) -> Iterator[Chromium]:
    """A window that shows the page of the cluster."""
    with koord_page(cluster.kubeconfig) as link:
        window.open(link)
        window.shows("live", ".contact")
        yield window


@pytest.fixture
def shown(opened: Chromium) -> Chromium:
    """It, as a person begins with it."""
    opened.size(1280)
    opened.scheme("light")
    opened.go("overview")
    return opened


@pytest.fixture
def kubeconfig(cluster: Cluster) -> Path:
    return cluster.kubeconfig
