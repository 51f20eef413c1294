"""Which PersistentVolumes the claims of a few pods are bound to.

The agent reads the claims that it needs, once each: a watch of all claims of the cluster on each of its nodes would
cost the API server far more, and a claim that is bound stays bound to its volume.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from koordinator.api.kinds import PERSISTENT_VOLUME_CLAIMS
from koordinator.base.errors import KoordinatorError
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.enforce.strategies.block_io import Claim
from koordinator.kube.interface import Client

logger = logging.getLogger(__name__)


class ClaimVolumes:
    """Call ``refresh`` now and then."""

    def __init__(self, client: Client, needed: Callable[[], frozenset[Claim]]) -> None:
        self._client = client
        self._needed = needed
        self._said = SaidOnce(logger)
        self.names: dict[Claim, str] = {}
        """The volumes of the claims that have been requested; empty for a claim that is not bound."""

    async def refresh(self) -> None:
        """Read the claims that are needed and not known to be bound; forget those that are no longer needed."""
        needed = self._needed()
        self.names = {claim: volume for claim, volume in self.names.items() if claim in needed}
        with self._said.round():
            for namespace, name in sorted(claim for claim in needed if not self.names.get(claim)):
                try:
                    found = await self._client.get(PERSISTENT_VOLUME_CLAIMS, name, namespace)
                except KoordinatorError as error:
                    self._said.say(f"the volume of the claim {namespace}/{name} is not known: {error}")
                else:
                    self.names[namespace, name] = found.spec.volume_name
