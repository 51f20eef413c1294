"""A gang's network topology requirements: the annotation ``gang.scheduling.koordinator.sh/network-topology-spec``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from koordinator.api.annotations import GANG_NETWORK_TOPOLOGY_SPEC
from koordinator.api.codec import DecodeError, decode

MUST_GATHER: Final = "MustGather"
PREFER_GATHER: Final = "PreferGather"
STRATEGIES: Final = (MUST_GATHER, PREFER_GATHER)


class GatherRule(msgspec.Struct, frozen=True, rename="camel"):
    """``pod_count_multiple``: the number of members in each domain of the layer must be a multiple of it; values up to
    1 have no effect."""

    layer: str = ""
    strategy: str = ""
    pod_count_multiple: int = 0


class TopologySpec(msgspec.Struct, frozen=True, rename="camel"):
    """The rules by layer. Without rules, members are gathered in the smallest domain that holds them."""

    gather_strategy: tuple[GatherRule, ...] | None = ()

    @property
    def rules(self) -> tuple[GatherRule, ...]:
        return self.gather_strategy or ()


def topology_spec_of(annotations: Mapping[str, str], problems: list[str]) -> TopologySpec | None:
    """The requirements in the annotation; None if it is absent, or cannot be decoded, which is added to
    ``problems``."""
    text = annotations.get(GANG_NETWORK_TOPOLOGY_SPEC)
    if not text:
        return None
    if text.strip() == "null":
        return TopologySpec()
    try:
        spec = decode(text, TopologySpec)
    except DecodeError as error:
        problems.append(f"{GANG_NETWORK_TOPOLOGY_SPEC}: {error}; the network does not matter to the gang")
        return None
    problems += [
        f"{GANG_NETWORK_TOPOLOGY_SPEC}: the strategy of layer {rule.layer!r} is {rule.strategy!r}; expected is "
        f"{' or '.join(STRATEGIES)}; {PREFER_GATHER} counts"
        for rule in spec.rules
        if rule.strategy not in STRATEGIES
    ]
    return spec
