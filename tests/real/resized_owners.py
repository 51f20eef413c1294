"""Pods that own Reservations and are resized on their nodes, or whose record is changed by hand, to compare with the
original's scheduler what becomes of others. There is no kubelet: what it says is written by the steps."""

from __future__ import annotations

from typing import Any, Final

from tests.real.reservation_runs import Granted, Record, Resize, Scenario, pod, reservation

_A: Final = "node-0"
_SHARED: Final[Any] = {"allocateOnce": False}
_ALIGNED: Final[Any] = {**_SHARED, "allocatePolicy": "Aligned"}


def _gives_back(**spec: Any) -> tuple[Any, ...]:
    """3 of 4 CPUs are reserved, and their owner goes on with 1."""
    return reservation("r", node=_A, **_SHARED, **spec), pod("o", node=_A), Resize("o", "1")


RESIZED: Final = (
    Scenario(
        "a stranger does not get what an owner has given back", (*_gives_back(), pod("p", "2", node=_A, app="other"))
    ),
    Scenario(
        "nor of one that is restricted",
        (*_gives_back(allocatePolicy="Restricted"), pod("p", "2", node=_A, app="other")),
    ),
    Scenario("a stranger gets what is left of the node", (*_gives_back(), pod("p", "1", node=_A, app="other"))),
    Scenario("another owner gets what an owner has given back", (*_gives_back(), pod("o2", "2", node=_A))),
    Scenario(
        "another owner must use it",
        (*_gives_back(allocatePolicy="Restricted"), pod("o2", "2", node=_A, affinity={})),
    ),
    Scenario(
        "an owner takes more and gives it back",
        (
            reservation("r", "2", node=_A, **_ALIGNED),
            pod("o", "2", node=_A),
            Resize("o", "4"),
            Resize("o", "1"),
            pod("p", "3", node=_A, app="other"),
        ),
    ),
    Scenario(
        "the kubelet has applied it",
        (*_gives_back(), Granted("o", "1", "1"), pod("p", "2", node=_A, app="other")),
    ),
    Scenario(
        "an owner's record is taken off",
        (
            reservation("r", "2", node=_A, **_SHARED),
            pod("o", "2", node=_A),
            Record("o"),
            pod("p", "1", node=_A, app="other"),
        ),
    ),
    Scenario(
        "a pod is recorded by hand",
        (
            pod("p", "2", node=_A, app="other"),
            reservation("r", "2", node=_A, **_SHARED),
            Record("p", "r"),
            pod("p2", "2", node=_A, app="other"),
        ),
    ),
)

OTHERWISE: Final = (
    Scenario(
        "an owner takes more than is reserved",
        (
            reservation("r", "2", node=_A, **_ALIGNED),
            pod("o", "2", node=_A),
            Resize("o", "3"),
            pod("p", "2", node=_A, app="other"),
            pod("p2", "1", node=_A, app="other"),
        ),
    ),
    Scenario(
        "the kubelet has not applied it",
        (*_gives_back(), Granted("o", "3", "3"), pod("p", "1", node=_A, app="other")),
    ),
    Scenario(
        "the kubelet refuses it",
        (
            reservation("r", "2", node=_A, **_SHARED),
            pod("o", "1", node=_A),
            Resize("o", "64"),
            Granted("o", "1", "1", "Infeasible"),
            pod("p", "3", node=_A, app="other"),
        ),
    ),
)
"""Where the original gives out more than a node has, or less than is free: see differences.md."""
PLACED: Final = {
    "an owner takes more than is reserved": {"p": False, "p2": True},
    "the kubelet has not applied it": {"p": True},
    "the kubelet refuses it": {"p": False},
}
"""Of those scenarios: whether a pod gets a node of us. Of the original it does if it does not of us."""
