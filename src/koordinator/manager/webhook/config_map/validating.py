"""``/validate-configmap``: refuses an invalid SLO configuration, which would otherwise be ignored silently.

The previous configuration is read from the request, not from the cluster: several changes in a row are each compared
with the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from koordinator.api.codec import convert
from koordinator.api.core import ConfigMap
from koordinator.api.meta import ObjectMeta
from koordinator.manager.webhook.admission import (
    ALLOWED,
    UNMEASURED,
    AdmissionRequest,
    AdmissionResponse,
    Steps,
    content,
)
from koordinator.model.slo_configuration.admission_check import check_config_map, check_nodes
from koordinator.model.slo_configuration.refusal import RefusalReason, refused
from koordinator.model.typing_mistakes import mistakes_of_configuration

_PLUGIN: Final = "SLOConfig"


class ConfigMapValidatingHandler:
    """Validates one ConfigMap; all others pass. Deleting it is allowed, and leaves the last configuration in force."""

    path = "/validate-configmap"

    def __init__(
        self,
        namespace: str,
        name: str,
        nodes: Callable[[], Iterable[ObjectMeta]],
        *,
        names_required: bool = False,
        is_strict: bool = False,
        steps: Steps = UNMEASURED,
    ) -> None:
        """``names_required``: strategies for groups of nodes must have unique names. ``is_strict``: keys and fields
        that no program knows are refused, not only warned of."""
        self._namespace = namespace
        self._name = name
        self._nodes = nodes
        self._names_required = names_required
        self._is_strict = is_strict
        self._steps = steps

    def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Raises RefusedConfigurationError, and DecodeError for an object that is no ConfigMap."""
        if request.resource != "configmaps" or request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
            return ALLOWED
        config_map = convert(content(request.object), ConfigMap)
        old = convert(content(request.old_object), ConfigMap) if request.operation == "UPDATE" else None
        with self._steps.step(request.operation, _PLUGIN):
            namespace = config_map.metadata.namespace or request.namespace
            if (namespace, config_map.metadata.name) == (self._namespace, self._name):
                return self._check(config_map, old)
        return ALLOWED

    def _check(self, config_map: ConfigMap, old: ConfigMap | None) -> AdmissionResponse:
        selections = check_config_map(
            config_map.data,
            old.data if old is not None else None,
            config_map=f"{self._namespace}/{self._name}",
            names_required=self._names_required,
        )
        if selections:
            check_nodes(selections, self._nodes())
        before = set(mistakes_of_configuration(old.data)) if old is not None else set()
        unknown = [each for each in mistakes_of_configuration(config_map.data) if each not in before]
        if unknown and self._is_strict:
            raise refused(RefusalReason.INVALID, {each.full_path: each.message for each in unknown})
        return AdmissionResponse(warnings=tuple(map(str, unknown))) if unknown else ALLOWED
