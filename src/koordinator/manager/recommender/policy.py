"""How the owner of a Recommendation tunes it, by the annotation ``recommendation-policy``. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from koordinator.api.codec import DecodeError, decode_any
from koordinator.api.pod import ResourceList
from koordinator.api.recommendation import (
    AUTO,
    CONTROLLED_VALUES,
    IN_PLACE_OR_RECREATE,
    OFF,
    POLICY,
    REQUESTS_ONLY,
    UPDATE_MODES,
    ContainerPolicy,
    RecommendationPolicy,
)
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.api.strict_decoding import decode_strictly
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.model.container_sizes import Bounds

RESOURCES: Final = (CPU, MEMORY)
_EVERY_CONTAINER: Final = "*"
_LARGEST_MARGIN: Final = 100.0
_PATH: Final = f"annotation {POLICY}: "


class PolicyError(KoordinatorError):
    """The annotation cannot be used; the text names the field, the value and what is allowed."""


_UNBOUNDED: Final = Bounds()


@dataclass(frozen=True, slots=True)
class ContainerRules:
    """The policy of one container. What is None or missing is as the flags say."""

    is_off: bool = False
    """Nothing is recommended."""
    target_percentile: Mapping[str, float] = field(default_factory=dict)
    margin_fraction: float | None = None
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    controlled: tuple[str, ...] = RESOURCES

    def bounds_of(self, resource: str) -> Bounds:
        return self.bounds.get(resource, _UNBOUNDED)


@dataclass(frozen=True, slots=True)
class Rules:
    """The policy of a Recommendation, by container."""

    named: Mapping[str, ContainerRules] = field(default_factory=dict)
    others: ContainerRules = ContainerRules()
    update_mode: str = OFF
    """One of UPDATE_MODES."""
    requests_only: bool = False
    """Whether limits stay as they are."""
    low_confidence_is_used: bool = False

    @property
    def is_applied(self) -> bool:
        """Whether new pods get what is recommended."""
        return self.update_mode != OFF

    @property
    def resizes(self) -> bool:
        """Whether running pods do."""
        return self.update_mode in (AUTO, IN_PLACE_OR_RECREATE)

    def of(self, container: str) -> ContainerRules:
        return self.named.get(container, self.others)


def read_policy(text: str | None) -> Rules:
    """None is an annotation that is absent. Raises PolicyError."""
    if text is None:
        return Rules()
    try:
        document = decode_any(text)
        if not isinstance(document, dict):
            raise PolicyError(f"{_PATH}{text!r} is not a JSON object")
        policy = decode_strictly(document, RecommendationPolicy, _PATH)
    except (DecodeError, ConfigurationError) as error:
        message = str(error)
        raise PolicyError(message if message.startswith(_PATH) else f"{_PATH}{message}") from None
    for field_name, word, allowed in (
        ("updateMode", policy.update_mode, UPDATE_MODES),
        ("controlledValues", policy.controlled_values, CONTROLLED_VALUES),
    ):
        if word not in allowed:
            raise PolicyError(f"{_PATH}{field_name}: {word!r}: {', '.join(allowed)} are allowed")
    common = ContainerPolicy(
        target_percentile=policy.target_percentile,
        margin_fraction=policy.margin_fraction,
        min_allowed=policy.min_allowed,
        max_allowed=policy.max_allowed,
        controlled_resources=policy.controlled_resources,
    )
    _check(common, "")
    _check_bounds(common, "")
    for name, container in policy.containers.items():
        _check(container, f"containers[{name}].")
    others = _over(policy.containers.get(_EVERY_CONTAINER, ContainerPolicy()), common)
    _check_bounds(others, f"containers[{_EVERY_CONTAINER}].")
    named = {name: _over(each, others) for name, each in policy.containers.items() if name != _EVERY_CONTAINER}
    for name, container in named.items():
        _check_bounds(container, f"containers[{name}].")
    return Rules(
        {name: _rules(each) for name, each in named.items()},
        _rules(others),
        update_mode=policy.update_mode,
        requests_only=policy.controlled_values == REQUESTS_ONLY,
        low_confidence_is_used=policy.low_confidence,
    )


def _over(own: ContainerPolicy, other: ContainerPolicy) -> ContainerPolicy:
    """``own`` with what it does not say from ``other``, resource by resource."""
    controlled = own.controlled_resources
    return ContainerPolicy(
        mode=own.mode,
        target_percentile={**other.target_percentile, **own.target_percentile},
        margin_fraction=other.margin_fraction if own.margin_fraction is None else own.margin_fraction,
        min_allowed={**other.min_allowed, **own.min_allowed},
        max_allowed={**other.max_allowed, **own.max_allowed},
        controlled_resources=other.controlled_resources if controlled is None else controlled,
    )


def _rules(policy: ContainerPolicy) -> ContainerRules:
    low, high = policy.min_allowed, policy.max_allowed
    bounds = {each: Bounds(_amount(low, each), _amount(high, each)) for each in RESOURCES}
    controlled = policy.controlled_resources
    return ContainerRules(
        is_off=policy.mode == OFF,
        target_percentile=policy.target_percentile,
        margin_fraction=policy.margin_fraction,
        bounds=bounds,
        controlled=RESOURCES if controlled is None else tuple(controlled),
    )


def _amount(amounts: ResourceList, resource: str) -> int | None:
    quantity = amounts.get(resource)
    if quantity is None:
        return None
    return quantity.milli if resource == CPU else quantity.value


def _check(policy: ContainerPolicy, path: str) -> None:
    """Each field on its own."""
    if policy.mode not in (AUTO, OFF):
        raise PolicyError(f"{_PATH}{path}mode: {policy.mode!r}: {AUTO} or {OFF} is allowed")
    _check_resources(policy.target_percentile, f"{path}targetPercentile")
    for resource, fraction in policy.target_percentile.items():
        if not 0 <= fraction <= 1:
            raise PolicyError(f"{_PATH}{path}targetPercentile[{resource}]: {fraction:g}: from 0 to 1 is allowed")
    margin = policy.margin_fraction
    if margin is not None and not 0 <= margin <= _LARGEST_MARGIN:
        raise PolicyError(f"{_PATH}{path}marginFraction: {margin:g}: from 0 to {_LARGEST_MARGIN:g} is allowed")
    for field_name, amounts in (("minAllowed", policy.min_allowed), ("maxAllowed", policy.max_allowed)):
        _check_resources(amounts, f"{path}{field_name}")
        for resource, quantity in amounts.items():
            if quantity.nanos < 0:
                raise PolicyError(f"{_PATH}{path}{field_name}[{resource}]: {quantity}: 0 or more is allowed")
    _check_resources(policy.controlled_resources or (), f"{path}controlledResources")


def _check_bounds(policy: ContainerPolicy, path: str) -> None:
    for resource in policy.min_allowed.keys() & policy.max_allowed.keys():
        low, high = policy.min_allowed[resource], policy.max_allowed[resource]
        if high < low:
            raise PolicyError(f"{_PATH}{path}maxAllowed[{resource}]: {high}: at least minAllowed, which is {low}")


def _check_resources(names: Iterable[str], path: str) -> None:
    for name in names:
        if name not in RESOURCES:
            raise PolicyError(f"{_PATH}{path}: {name!r}: {' and '.join(RESOURCES)} are allowed")
