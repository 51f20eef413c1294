"""Feature gates with upstream's stages, defaults and ``--feature-gates`` syntax."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from koordinator.base.errors import ConfigurationError
from koordinator.base.metrics import Metrics
from koordinator.base.spelling import near

logger = logging.getLogger(__name__)

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class Stage(Enum):
    """The maturity of a feature; the value is upstream's term for it."""

    ALPHA = "ALPHA"
    BETA = "BETA"
    GA = "GA"
    DEPRECATED = "DEPRECATED"


@dataclass(frozen=True, slots=True)
class Feature:
    """A gate's default, its stage, and whether it can still be changed."""

    default: bool
    stage: Stage = Stage.ALPHA
    locked: bool = False
    without_effect: str = ""
    """Why the program goes by nothing that the gate says; empty if it does."""


_ALL = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}


def parse_bool(field: str, text: str) -> bool:
    """Go's ``strconv.ParseBool``. Raises ConfigurationError naming ``field``."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ConfigurationError(field, text, "write true or false")


class FeatureGates:
    """The feature gates of one program. ``AllAlpha`` and ``AllBeta`` set a stage's gates that are not set by name."""

    def __init__(self, features: Mapping[str, Feature]) -> None:
        self._features = dict(features)
        self._set: dict[str, bool] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._features)

    def add(self, features: Mapping[str, Feature]) -> None:
        """Add gates; ValueError where one exists with another default or stage."""
        for name, feature in features.items():
            if self._features.get(name, feature) != feature:
                raise ValueError(f"feature gate {name} exists as {self._features[name]}")
            self._features[name] = feature

    def enabled(self, name: str) -> bool:
        """Return whether a feature is enabled; KeyError for a name that was never added (a programming error)."""
        feature = self._features[name]
        if name in self._set:
            return self._set[name]
        if feature.locked:
            return feature.default
        for everything, stage in _ALL.items():
            if feature.stage is stage and everything in self._set:
                return self._set[everything]
        return feature.default

    def feature(self, name: str) -> Feature:
        """What is known of a feature; KeyError for a name that was never added."""
        return self._features[name]

    def set(self, values: Mapping[str, bool], field: str = "featureGates") -> None:
        """Set gates by name, all or none. Raises ConfigurationError for an unknown or a locked gate."""
        for name, value in values.items():
            self._check(name, value, field)
        self._set.update(values)

    def without_effect(self) -> list[str]:
        """A sentence for each gate that was set and has no effect in this program, which says why."""
        known = {name: self._features[name].without_effect for name in self._set if name in self._features}
        return [f"feature gate {name} has no effect: {why}" for name, why in known.items() if why]

    def export(self, metrics: Metrics) -> None:
        """Register one gauge per gate that has an effect, as component-base does; to be called after all gates are
        set."""
        gauge = metrics.gauge(
            "kubernetes_feature_enabled",
            "This metric records the data about the stage and enablement of a k8s feature.",
            ("name", "stage"),
            stability="BETA",
        )
        for name, feature in self._features.items():
            if feature.without_effect:
                continue
            # Upstream's stage label is empty for generally available features.
            stage = "" if feature.stage is Stage.GA else feature.stage.value
            gauge.labels(name, stage).set(self.enabled(name))

    def describe(self) -> list[str]:
        """Return one line per gate that can be set and has an effect, in the format of upstream's help text."""
        lines = [f"{name}=true|false ({stage.value} - default=false)" for name, stage in _ALL.items()]
        for name, feature in sorted(self._features.items()):
            if feature.stage is not Stage.GA and not feature.locked and not feature.without_effect:
                lines.append(f"{name}=true|false ({feature.stage.value} - default={str(feature.default).lower()})")
        return lines

    def _check(self, name: str, value: bool, field: str) -> None:
        if name in _ALL:
            return
        feature = self._features.get(name)
        if feature is None:
            raise ConfigurationError(field, name, self._near(name))
        if feature.locked and value != feature.default:
            allowed = f"the gate is locked to {str(feature.default).lower()}"
            raise ConfigurationError(field, f"{name}={str(value).lower()}", allowed)
        if feature.stage in (Stage.GA, Stage.DEPRECATED) and not feature.without_effect:
            logger.warning(
                "setting %s feature gate %s; it will be removed in a future release", feature.stage.value, name
            )

    def _near(self, name: str) -> str:
        """The known names that are like ``name``; if there are none, those that have an effect."""
        if found := near(name, [*_ALL, *self._features], 3):
            return f"did you mean {' or '.join(found)}?"
        working = sorted(each for each, feature in self._features.items() if not feature.without_effect)
        return f"known are {', '.join([*_ALL, *working])}"


def parse_gates(text: str, field: str = "--feature-gates", component: str = "") -> dict[str, bool]:
    """Read ``A=true,B=false``; blanks around the parts are allowed, as in Go. ``component`` may stand before a name,
    with a colon, as programs that know the gates of several components have it."""
    values: dict[str, bool] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not name and not equals:
            continue
        if not equals:
            raise ConfigurationError(field, part, "write NAME=true or NAME=false")
        name = name.strip()
        if component:
            name = name.removeprefix(f"{component}:")
        values[name] = parse_bool(f"{field} {name}", value.strip())
    return values
