"""How the children of one parent quota share its runtime: the original's arithmetic (runtime_quota_calculator.go and
scale_minquota_when_over_root_res.go), in integers, and independent of the order of the children."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from koordinator.scheduler.plugins.elastic_quota.amounts import Amounts


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of one child to one resource."""

    name: str
    request: int
    """The child's request, limited to its max."""
    floor: int
    """What the child gets if it requests it, whatever others request: its scaled min, or its guarantee if larger."""
    weight: int
    lends: bool
    """Whether others may use the part of its floor that it does not request."""


def share(total: int, claims: Sequence[Claim]) -> dict[str, int]:
    """Child name -> share. Each child first gets the smaller of its request and its floor, or its floor if it lends
    nothing. The rest is divided by weight among the children that request more, until their requests are satisfied or
    nothing is left. Floors are granted even beyond ``total``."""
    shares: dict[str, int] = {}
    unsatisfied: list[Claim] = []
    for claim in claims:
        if claim.request > claim.floor:
            unsatisfied.append(claim)
            shares[claim.name] = claim.floor
        else:
            shares[claim.name] = claim.request if claim.lends else claim.floor
    left = total - sum(shares.values())
    while left > 0 and unsatisfied:
        portions = _by_weight(left, unsatisfied)
        if not portions:
            break
        left = 0
        for claim in unsatisfied:
            shares[claim.name] += portions.get(claim.name, 0)
            left += max(shares[claim.name] - claim.request, 0)
            shares[claim.name] = min(shares[claim.name], claim.request)
        unsatisfied = [claim for claim in unsatisfied if shares[claim.name] < claim.request]
    return shares


def _by_weight(amount: int, claims: Iterable[Claim]) -> dict[str, int]:
    """Child name -> portion of ``amount`` by the method of largest remainders, ties by name; empty without weights."""
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
    """The min of one child, scaled down in proportion if the mins of all children (``together``) exceed ``available``.

    Computed in floating point and truncated to an integer, as in the original. A resource missing in ``available`` is
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
