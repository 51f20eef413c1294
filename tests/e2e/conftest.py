"""Programs as processes, and no cluster of the person who runs them."""

from __future__ import annotations

from tests.cli.conftest import no_cluster_of_the_user as no_cluster_of_the_user
