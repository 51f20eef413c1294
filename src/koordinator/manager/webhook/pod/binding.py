"""``/validate-pod-binding``: during a migration between schedulers, only the allowed ones may bind pods.

In doubt a binding is allowed: no scheduling at all is worse than some pods placed by the old scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from koordinator.api.labels import BINDING_ADMISSION_BYPASS
from koordinator.api.meta import ObjectMeta
from koordinator.manager.webhook.admission import ALLOWED, AdmissionRequest, AdmissionResponse

_EVERY_NAMESPACE: Final = "*"
DENIED: Final = "denied"
DRY_RUN: Final = "dry_run"
_REFUSAL: Final = AdmissionResponse(
    allowed=False,
    code=403,
    reason="Forbidden",
    message="binding denied: username is not in the allowed list",
)


@dataclass(frozen=True, slots=True)
class BindingAdmissionSettings:
    """The parsed ``--binding-admission-…`` flags."""

    user_names: tuple[str, ...] = ()
    """Parts of the names of users who may bind; when empty, every user may."""
    dry_run: bool = False
    """Bindings that would be denied are recorded and allowed."""
    namespaces: tuple[str, ...] = ()
    """The namespaces where the rule is enforced: none when empty, all for ``*``."""
    excluded_namespaces: tuple[str, ...] = ("kube-system",)
    bypass_labels: tuple[str, ...] = (BINDING_ADMISSION_BYPASS,)
    """Label keys; a pod that has one is exempt, whatever its value."""
    bypass_annotations: tuple[str, ...] = ()


class BindingAdmissionHandler:
    """``pod_metadata`` returns a pod by namespace and name; ``record`` is called with each decision's metric label."""

    path = "/validate-pod-binding"

    def __init__(
        self,
        settings: BindingAdmissionSettings,
        pod_metadata: Callable[[str, str], ObjectMeta | None],
        record: Callable[[str, AdmissionRequest], None],
    ) -> None:
        self._settings = settings
        self._pod_metadata = pod_metadata
        self._record = record

    def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        if not self._settings.user_names or not _is_binding(request):
            return ALLOWED
        decision = self._decide(request)
        if decision:
            self._record(decision, request)
        return _REFUSAL if decision == DENIED else ALLOWED

    def _decide(self, request: AdmissionRequest) -> str:
        """The decision's metric label; empty where the request is no binding that needs one."""
        if any(part in request.user_name for part in self._settings.user_names):
            return "allowed_username"
        scope = self._scope(request.namespace)
        if scope is not None:
            return scope
        metadata = self._pod_metadata(request.namespace, request.name)
        if metadata is None:
            return ""
        if any(key in metadata.labels for key in self._settings.bypass_labels):
            return "bypass_label"
        if any(key in metadata.annotations for key in self._settings.bypass_annotations):
            return "bypass_annotation"
        return DRY_RUN if self._settings.dry_run else DENIED

    def _scope(self, namespace: str) -> str | None:
        """The decision for a namespace where the rule is not enforced; None where it is."""
        if namespace in self._settings.excluded_namespaces:
            return "excluded_ns"
        if self._settings.namespaces == (_EVERY_NAMESPACE,):
            return None
        if not self._settings.namespaces:
            return ""
        return None if namespace in self._settings.namespaces else "out_of_scope"


def _is_binding(request: AdmissionRequest) -> bool:
    return request.resource == "pods" and request.sub_resource == "binding" and request.operation == "CREATE"
