"""``koordlet --cleanup``: takes back what koordlet enforces on its node, for when it is removed.

Every feature is switched off as its gate would, and the NodeSLO counts as one that enables nothing; the values that
follow are written in a few rounds. The pods are read from the kubelet, since the quota of a container is in its spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.base.feature_gates import FeatureGates
from koordinator.koordlet import features
from koordinator.koordlet.enforce.enforcement import Enforcement
from koordinator.koordlet.enforce.executor.desired_settings import IN_FORCE, Explanation, Outcome

SECONDS: Final = 60.0
"""For all of it: an API server or a kubelet that is away is not waited for any longer."""
_ROUNDS: Final = 10
_PAUSE: Final = 1.0
_NAMED: Final = 5
_OPEN: Final = (Outcome.NOT_WRITTEN_YET, Outcome.REFUSED, Outcome.NOT_HELD)
_AS_GIVEN: Final = (features.CGROUP_RECONCILE, features.BLOCK_IO_RECONCILE)
"""Where these are off, on the command line and in the ConfigMap, koordlet has written nothing, and the values in the
files are those of another program."""


class CleanupError(KoordinatorError):
    """Something of koordlet's is left."""


def switch_off(gates: FeatureGates, of_command_line: FeatureGates) -> None:
    """All that is enforced, but for what is taken back by a policy: that is on if either is."""
    as_given = {name: gates.enabled(name) or of_command_line.enabled(name) for name in _AS_GIVEN}
    gates.set({name: as_given.get(name, False) for name in features.ENFORCING})


@dataclass(frozen=True, slots=True)
class Cleanup:
    """What came of it."""

    done: int
    """Values that are as kubelet has them."""
    left: Mapping[str, Explanation]
    """Those that the kernel has refused, by path."""

    def check(self) -> int:
        """``done``. CleanupError if anything is left, which names some of it."""
        if not self.left:
            return self.done
        some = sorted(self.left.items())[:_NAMED]
        more = f"; and {len(self.left) - len(some)} more" if len(self.left) > len(some) else ""
        named = "; ".join(f"{path}: {each.outcome.value}: {each.detail}" for path, each in some)
        raise CleanupError(f"{len(self.left)} files are not as kubelet has them: {named}{more}")


async def take_back(enforcement: Enforcement, clock: Clock) -> Cleanup:
    """Enforce until nothing is left to be written, or it has been tried often enough."""
    done: set[str] = set()
    for _ in range(_ROUNDS):
        for loop in enforcement.loops():
            await loop.body()
        enforcement.enforcing.run_everything()
        explanations = enforcement.executor.explanations()
        # What has its value from the kubelet again is forgotten in the next round.
        done.update(each.path for each in explanations if each.outcome in IN_FORCE)
        left = {each.path: each for each in explanations if each.outcome in _OPEN}
        if not left:
            break
        await clock.sleep(_PAUSE)
    return Cleanup(len(done - left.keys()), left)
