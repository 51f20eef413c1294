from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.embedded_thread import embedded_server


@pytest.fixture
def embedded_kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """Access to a server in memory that runs in a thread: for tests that drive other programs."""
    with embedded_server(tmp_path) as kubeconfig:
        yield kubeconfig
