"""What a workload controller is made of, and where it records events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from koordinator.base.clock import Clock
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.informer_set import InformerSet
from koordinator.kube.interface import Client
from koordinator.kube.reconciler import Controller, Reconcilers


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """The dependencies that all controllers share. A controller takes its informers from ``informers`` when it is
    made, and its reconciler from ``reconcilers``."""

    client: Client
    informers: InformerSet
    events: EventBroadcaster
    reconcilers: Reconcilers
    clock: Clock
    random: Random
    authority: str = ""
    """The certificates that a client of the API server trusts, as PEM; empty if they are not known."""


ControllerMaker = Callable[[ControllerContext], Controller]
