"""How the children of one parent share what it has: the original's arithmetic (runtime_quota_calculator.go and
scale_minquota_when_over_root_res.go), in integers and independent of any order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from koordinator.scheduler.plugins.elastic_quota.amounts import Amounts


@dataclass(frozen=True, slots=True)
class Claim:
    """What one child wants of one resource."""

    name: str
    request: int
    """Not above its max."""
    floor: int
    """What it is given even if others want it, too: its min, scaled, or what it is guaranteed."""
    weight: int
    lends: bool
    """Whether others may use of its floor what it does not request."""


def share(total: int, claims: Sequence[Claim]) -> dict[str, int]:
    """The share of each child. Everyone gets the smaller of request and floor first; what is left goes to those who
    want more, by weight, until nobody wants more or nothing is left. Floors are granted even beyond ``total``."""
    shares: dict[str, int] = {}
    hungry: list[Claim] = []
    for claim in claims:
        if claim.request > claim.floor:
            hungry.append(claim)
            shares[claim.name] = claim.floor
        else:
            shares[claim.name] = claim.request if claim.lends else claim.floor
    left = total - sum(shares.values())
    while left > 0 and hungry:
        portions = _by_weight(left, hungry)
        if not portions:
            break
        left = 0
        for claim in hungry:
            shares[claim.name] += portions.get(claim.name, 0)
            left += max(shares[claim.name] - claim.request, 0)
            shares[claim.name] = min(shares[claim.name], claim.request)
        hungry = [claim for claim in hungry if shares[claim.name] < claim.request]
    return shares


def _by_weight(amount: int, claims: Iterable[Claim]) -> dict[str, int]:
    """The whole of ``amount`` by the method of largest remainders, ties by name; nothing where nobody has a weight."""
    weighted = [claim for claim in claims if claim.weight > 0]
    weights = sum(claim.weight for claim in weighted)
    if not weights:
        return {}
    portions: dict[str, int] = {}
    remainders: list[tuple[int, str]] = []
    for claim in weighted:
        portions[claim.name], remainder = divmod(claim.weight * amount, weights)
        remainders.append((-remainder, claim.name))
    residual = amount - sum(portions.values())
    for _, name in sorted(remainders)[:residual]:
        portions[name] += 1
    return portions


def scaled_min(own: Mapping[str, int], together: Mapping[str, int], available: Mapping[str, int]) -> Amounts:
    """The min of one child where all of them ask for more (``together``) than their parent has: in proportion.

    In floating point and cut to an integer, as the original does; a resource that the parent does not know at all is
    not scaled.
    """
    scaled = dict(own)
    for name, amount in available.items():
        total = together.get(name, 0)
        if amount >= total:
            continue
        part = int(float(amount) * float(own.get(name, 0)) / float(total)) if amount > 0 else 0
        if part or name in own:
            scaled[name] = part
    return scaled
