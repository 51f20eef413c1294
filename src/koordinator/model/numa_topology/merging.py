"""Merges the hints of all resources into one set of NUMA nodes for the pod, or the reasons why there is none.

The rule is that of the kubelet's topology manager, to which the original adds scores. It considers every combination of
one hint for each resource; there may be too many of these, and only few can win. All hints of a preferred combination
have the same mask, so these are looked up by mask. Only if there is none, and the policy accepts others, are the
remaining ones considered: all of them up to a bound, beyond it the possible masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Final

from koordinator.model.numa_topology.hints import (
    Hints,
    NUMANodeState,
    NUMATopologyHint,
    NUMATopologyPolicy,
    format_mask,
    is_exclusive,
    mask_of,
)

COMBINATIONS: Final = 4096
"""Up to so many combinations are considered one by one."""
_ANY: Final = NUMATopologyHint(None, preferred=True)
_NOWHERE: Final = NUMATopologyHint(None, unsatisfied=True)


@dataclass(frozen=True, slots=True)
class Merged:
    """The hint for the pod as a whole. With ``reasons`` it is rejected."""

    hint: NUMATopologyHint
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Machine:
    """``states`` are set for pods that must be exclusive on their NUMA nodes."""

    numa_nodes: tuple[int, ...]
    states: Mapping[int, NUMANodeState] | None = None

    @property
    def mask(self) -> int:
        """All of its NUMA nodes."""
        return mask_of(self.numa_nodes)


@dataclass(frozen=True, slots=True)
class _Listed:
    """The hints of all providers, one list for each resource."""

    lists: tuple[tuple[NUMATopologyHint, ...], ...]
    reasons: tuple[str, ...]
    summary: tuple[str, ...]


def merge(policy: NUMATopologyPolicy, machine: Machine, provided: Iterable[Hints]) -> Merged:
    """Merge ``provided``, the hints of each provider, under ``policy``, which is not NONE."""
    listed = _listed(provided)
    everywhere = NUMATopologyHint(machine.mask)
    if policy is NUMATopologyPolicy.BEST_EFFORT:
        best = best_hint(listed.lists, machine)
        return Merged(everywhere if best.unsatisfied else best)
    if listed.reasons:
        return Merged(everywhere, listed.reasons)
    single = policy is NUMATopologyPolicy.SINGLE_NUMA_NODE
    lists = tuple([tuple(filter(_is_single, hints)) for hints in listed.lists]) if single else listed.lists
    best = _fold(_preferred_combinations(lists), machine)
    if not best.preferred:
        cause = ("," if single else " & ").join(listed.summary)
        return Merged(best, (f"Unaligned NUMA Hint cause {cause}",))
    if single and best.mask == machine.mask:
        # On a machine with one NUMA node there is nothing to align.
        best = replace(best, mask=None)
    return Merged(best)


def best_hint(
    lists: Sequence[Sequence[NUMATopologyHint]], machine: Machine, combinations: int = COMBINATIONS
) -> NUMATopologyHint:
    """The best combination of one hint of each of ``lists``, preferred or not. Up to ``combinations`` are considered
    one by one."""
    best = _fold(_preferred_combinations(lists), machine)
    if best.preferred:
        return best
    if prod([len(hints) for hints in lists]) <= combinations:
        return _fold(product(*lists), machine)
    return _narrowest(lists, machine)


def _listed(provided: Iterable[Hints]) -> _Listed:
    lists: list[tuple[NUMATopologyHint, ...]] = []
    reasons: list[str] = []
    summary: list[str] = []
    for hints in provided:
        if not hints:
            lists.append((_ANY,))
        for resource, of_resource in sorted(hints.items()):
            if of_resource is None:
                lists.append((_ANY,))
            elif not of_resource:
                lists.append((_NOWHERE,))
                reasons.append(f"Unsatisfied NUMA {resource}")
            else:
                lists.append(tuple(of_resource))
                summary.append(_summary(resource, of_resource))
    return _Listed(tuple(lists), tuple(reasons), tuple(sorted(summary)))


def _summary(resource: str, hints: Iterable[NUMATopologyHint]) -> str:
    possible = [hint for hint in hints if not hint.unsatisfied]
    among = " ".join([_text(hint) for hint in possible])
    preferred = " ".join([_text(hint) for hint in possible if hint.preferred])
    return f"{resource} prefer [{preferred}] among [{among}]"


def _text(hint: NUMATopologyHint) -> str:
    return "<nil>" if hint.mask is None else format_mask(hint.mask)


def _is_single(hint: NUMATopologyHint) -> bool:
    return hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1)


def _preferred_combinations(lists: Sequence[Sequence[NUMATopologyHint]]) -> Iterator[tuple[NUMATopologyHint, ...]]:
    """The combinations that can be preferred, in the order of all combinations: preferred hints of equal masks."""
    by_mask = [_preferred_by_mask(hints) for hints in lists]
    masks: dict[int | None, None] = {}
    for of_list in by_mask:
        masks.update(dict.fromkeys(mask for mask in of_list if mask is not None))
        if masks:
            # Every other list must have one of these, too, or hints for which the mask does not matter.
            break
    for mask in masks or {None: None}:
        chosen = [of_list.get(mask) or of_list.get(None) for of_list in by_mask]
        complete = [hint for hint in chosen if hint is not None]
        if len(complete) == len(chosen):
            yield tuple(complete)


def _preferred_by_mask(hints: Iterable[NUMATopologyHint]) -> dict[int | None, NUMATopologyHint]:
    return {hint.mask: hint for hint in hints if hint.preferred}


def _fold(combinations: Iterable[Sequence[NUMATopologyHint]], machine: Machine) -> NUMATopologyHint:
    """The best of ``combinations``; of equally good ones the first."""
    everywhere = machine.mask
    best = NUMATopologyHint(everywhere)
    for combination in combinations:
        merged = _merged(combination, everywhere)
        if not merged.mask:
            continue
        if merged.preferred and machine.states is not None and not is_exclusive(merged.mask, machine.states):
            merged = replace(merged, preferred=False)
        if _is_better(merged, best):
            best = merged
    return best


def _merged(combination: Sequence[NUMATopologyHint], everywhere: int) -> NUMATopologyHint:
    masks = [hint.mask for hint in combination if hint.mask is not None]
    mask = everywhere
    for each in masks:
        mask &= each
    largest = max([each.bit_count() for each in masks], default=mask.bit_count())
    return NUMATopologyHint(
        mask,
        preferred=all(hint.preferred for hint in combination) and len(set(masks)) <= 1,
        unsatisfied=largest != mask.bit_count() or any(hint.unsatisfied for hint in combination),
        score=sum([hint.score for hint in combination if hint.mask == mask]),
    )


def _is_better(hint: NUMATopologyHint, than: NUMATopologyHint) -> bool:
    if hint.preferred != than.preferred:
        return hint.preferred
    assert hint.mask is not None, "of what is merged it is known"
    assert than.mask is not None, "of what is merged it is known"
    size, other = hint.mask.bit_count(), than.mask.bit_count()
    return size < other or (size == other and (hint.mask < than.mask or hint.score > than.score))


def _narrowest(lists: Sequence[Sequence[NUMATopologyHint]], machine: Machine) -> NUMATopologyHint:
    """The result if there are too many combinations, and none is preferred: the smallest of all possible masks, and of
    equally small ones the lowest. It is satisfied if every list has it, or accepts any."""
    possible = {machine.mask}
    for hints in lists:
        masks = {machine.mask if hint.mask is None else hint.mask for hint in hints}
        possible = {mask & each for mask in possible for each in masks} - {0}
    if not possible:
        return NUMATopologyHint(machine.mask)
    mask = min(possible, key=lambda each: (each.bit_count(), each))
    chosen = [[hint for hint in hints if hint.mask in (mask, None) and not hint.unsatisfied] for hints in lists]
    score = sum([hint.score for hints in chosen for hint in hints[:1] if hint.mask == mask])
    return NUMATopologyHint(mask, unsatisfied=not all(chosen), score=score)
