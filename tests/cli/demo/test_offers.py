"""What the demonstration offers to the API over its day: the server takes all of it."""

from __future__ import annotations

from pathlib import Path

from koordinator.api.kinds import PODS
from koordinator.cli.demo.day import NAMESPACE
from koordinator.cli.demo.play import arrivals_by_hour
from koordinator.cli.local_cluster.running import prepare
from tests.cli.explained_cluster import explained_cluster


def test_everything_is_taken(tmp_path: Path) -> None:
    taken = 0
    with explained_cluster(tmp_path) as cluster:
        cluster.do(prepare(cluster.client, with_webhooks=False))
        for arrival in (each for arrivals in arrivals_by_hour().values() for each in arrivals):
            for kind, document in arrival.objects:
                cluster.create(kind, document, NAMESPACE if kind.namespaced else "")
            for pod in arrival.pods:
                cluster.create(PODS, pod, NAMESPACE)
                taken += 1
    assert taken > 500
