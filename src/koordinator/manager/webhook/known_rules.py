"""The further rules for pods, taken from their ConfigMap as often as --pod-enhanced-validator-reconcile-interval says.

As the original's, they are first read for the first pod, and again for the first pod after each interval.
"""

from __future__ import annotations

import logging

from koordinator.api.core import ConfigMap
from koordinator.api.kinds import CONFIG_MAPS
from koordinator.base.clock import Clock
from koordinator.base.errors import ConfigurationError
from koordinator.kube.informer_set import InformerSet
from koordinator.manager.options import PodEnhancedValidatorOptions
from koordinator.manager.webhook.pod.enhanced_rules import EnhancedRule, EnhancedRules

logger = logging.getLogger(__name__)


class ConfiguredRules:
    """Call it for the rules that are in force."""

    def __init__(self, informers: InformerSet, options: PodEnhancedValidatorOptions, clock: Clock) -> None:
        self._key = f"{options.config_namespace}/{options.config_name}"
        self._interval = options.reconcile_interval.total_seconds()
        self._clock = clock
        self._rules = EnhancedRules()
        self._read: ConfigMap | None = None
        self._read_again_at = float("-inf")
        self._config_maps = informers.informer(
            CONFIG_MAPS, namespace=options.config_namespace, field_selector=f"metadata.name={options.config_name}"
        )

    def __call__(self) -> tuple[EnhancedRule, ...]:
        now = self._clock.monotonic()
        if now >= self._read_again_at:
            self._read_again_at = now + self._interval
            self._load(self._config_maps.get(self._key))
        return self._rules.in_force

    def _load(self, config_map: ConfigMap | None) -> None:
        """Where it cannot be used, the rules that were in force stay."""
        if config_map is self._read:
            return
        self._read = config_map
        try:
            self._rules.load(config_map.data if config_map is not None else None)
        except ConfigurationError as error:
            logger.warning("ConfigMap %s: the rules before it stay in force: %s", self._key, error)
