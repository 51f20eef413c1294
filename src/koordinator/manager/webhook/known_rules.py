"""The further rules for pods, taken from their ConfigMap whenever it changes."""

from __future__ import annotations

import logging

from koordinator.api.core import ConfigMap
from koordinator.api.kinds import CONFIG_MAPS
from koordinator.base.errors import ConfigurationError
from koordinator.kube.informer_set import InformerSet
from koordinator.manager.options import PodEnhancedValidatorOptions
from koordinator.manager.webhook.pod.enhanced_rules import EnhancedRules

logger = logging.getLogger(__name__)


def follow_rules(informers: InformerSet, options: PodEnhancedValidatorOptions, rules: EnhancedRules) -> None:
    """Keep ``rules`` at what the ConfigMap says; where that cannot be used, the last that could stay in force."""

    def load(config_map: ConfigMap | None) -> None:
        try:
            rules.load(config_map.data if config_map is not None else None)
        except ConfigurationError as error:
            logger.warning(
                "ConfigMap %s/%s: the rules before it stay in force: %s",
                options.config_namespace,
                options.config_name,
                error,
            )

    informer = informers.informer(
        CONFIG_MAPS, namespace=options.config_namespace, field_selector=f"metadata.name={options.config_name}"
    )
    informer.add_handlers(
        name="pod-enhanced-validator",
        on_add=lambda config_map, initial: load(config_map),
        on_update=lambda old, new: load(new),
        on_delete=lambda config_map: load(None),
    )
