"""One node whose agent reports nonsense, for some hours and at least until koord-manager has noticed."""

from __future__ import annotations

from koordinator.api.kinds import NODES
from koordinator.cli.demo.day import FAULTY, FAULTY_FROM_HOUR, FAULTY_TO_HOUR
from koordinator.cli.demo.observation import Day
from koordinator.cluster.nodes.scenario_checks import FAULT_ANNOTATION, Fault
from koordinator.kube.interface import Client, PatchType


class FaultyNode:
    """Call ``follow`` after each look at the nodes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._has_fault = False

    async def follow(self, day: Day, hour: float) -> None:
        """Have the fault begin or end, when it is time."""
        marks = day.marks.get(FAULTY, [])
        if not self._has_fault and not marks and hour >= FAULTY_FROM_HOUR:
            await self._say(Fault.NEGATIVE_READINGS)
        elif self._has_fault and marks and hour >= FAULTY_TO_HOUR:
            await self._say(None)

    async def _say(self, fault: Fault | None) -> None:
        patch = {"metadata": {"annotations": {FAULT_ANNOTATION: fault}}}
        await self._client.patch(NODES, FAULTY, patch, PatchType.MERGE)
        self._has_fault = fault is not None
