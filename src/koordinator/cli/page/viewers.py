"""Who looks at the page, and with whose rights what they ask is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from koordinator.cli.explanation import Sources
from koordinator.cli.page.board import SightOf
from koordinator.cli.session import Session
from koordinator.kube.pages import Request


@dataclass(slots=True)
class Viewer:
    """``sight_of`` is replaced when the viewer's rights change; ``sources`` and ``session`` are those with which
    explanations are asked for."""

    sight_of: SightOf
    sources: Sources
    session: Session
    cluster_options: Callable[[Path], Sequence[str]]
    """The options by which another command queries the same cluster with the same rights; what it needs for that is put
    into the folder, which is for nobody else."""
    is_admitted: Callable[[], bool] = lambda: True
    """Whether a stream that was begun may go on."""
    watches: int = 0
    """How many streams the viewer reads."""


class Access(Protocol):
    """Says who somebody is. Both raise PageError."""

    def check_host(self, request: Request) -> None:
        """Of a request for what everybody may have: whether it is for this server at all."""

    async def viewer(self, request: Request) -> Viewer:
        """Who sends a request for what is in the cluster."""
