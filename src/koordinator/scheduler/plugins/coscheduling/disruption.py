"""The part of Coscheduling that tells whoever evicts pods which of them are useless without the others.

A gang needs as many members as its minimum: those beyond are spare, and may leave alone. When one more leaves, the
gangs of its group do no work, and all of their members may as well leave. A gang whose minimum cannot be read needs all
of its members.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from koordinator.scheduler.engine.framework_hooks import DisruptionUnit, DisruptionUnits
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.coscheduling.gang import Gang, MemberState
from koordinator.scheduler.plugins.coscheduling.gangs import GangPart

_ON_NODES: Final = (MemberState.BINDING, MemberState.BOUND)


class GangDisruption(GangPart, DisruptionUnits):
    """In profiles with the argument ``gangPolicy: Whole``."""

    def gang_of(self, pod: PodInfo) -> str:
        """Empty for one that waits at Permit, too: it runs nothing that the others need."""
        member = self.cache.by_uid.get(pod.uid)
        return member.gang.id if member is not None and member.state in _ON_NODES else ""

    def unit(self, gang: str) -> DisruptionUnit:
        """Without members if none of them needs the others: then each leaves alone."""
        found = self.cache.gangs[gang]
        if found.declaration is not None and not found.declaration.needs_others:
            return DisruptionUnit(gang, (gang,), {}, 0)
        ids = found.declaration.group if found.declaration is not None else (gang,)
        of_group = [self.cache.gangs[id_] for id_ in ids if id_ in self.cache.gangs]
        members = {pod.uid: pod for each in of_group for pod in self._staying(each)}
        own = sum(uid in members for uid in found.members)
        spare = own - found.declaration.min_member if found.declaration is not None else 0
        return DisruptionUnit(gang, ids, members, max(spare, 0))

    def _staying(self, gang: Gang) -> Iterator[PodInfo]:
        """The members that have a node and are not being deleted."""
        rows, view = self.view.columns.row_of, self.view
        for state in _ON_NODES:
            for uid, member in gang.by_state[state].items():
                row = rows.get(view.node_of(uid) or "")
                if row is not None and member.pod.metadata.deletion_timestamp is None:
                    yield view.pods_on[row][uid]
