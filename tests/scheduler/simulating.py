"""What a plugin follows when pods come and go, and all of it back: real events, unlike in a simulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.pod_info import PodInfo


@contextmanager
def simulating(state: ClusterState, row: int, removed: Iterable[PodInfo], added: Iterable[PodInfo]) -> Iterator[None]:
    """``removed`` leave ``row`` and ``added`` come there, until the end of the block."""
    taken = [placed for pod in removed if (placed := state.placed(pod.uid)) is not None]
    come = [pod for pod in added if state.placed(pod.uid) is None]
    for placed in taken:
        state.take_off(placed)
    for pod in come:
        state.assume(pod, state.view.columns.names[row])
    yield
    for pod in come:
        state.forget(pod.uid)
    for placed in taken:
        state.put_back(placed)
