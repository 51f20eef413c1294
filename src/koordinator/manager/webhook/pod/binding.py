"""``/validate-pod-binding``: during a migration between schedulers, only the allowed ones may bind pods.

In doubt a binding is allowed: no scheduling at all is worse than some pods placed by the old scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from koordinator.api.labels import BINDING_ADMISSION_BYPASS
from koordinator.api.meta import ObjectMeta
from koordinator.base.option_flags import switch, texts
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
    """Who may bind which pods, by flags. A label or an annotation exempts a pod whatever its value."""

    user_names: tuple[str, ...] = texts(
        "binding-admission-user-name",
        (),
        "Parts of the names of users who may bind pods, such as koord-scheduler; empty: everybody may (feature "
        "BindingAdmissionWebhook).",
    )
    dry_run: bool = switch(
        "binding-admission-dry-run", False, "Let everybody bind, but log and count who would be refused."
    )
    namespaces: tuple[str, ...] = texts(
        "binding-admission-namespaces",
        (),
        "The namespaces where this is checked; * is all of them, empty is none, where everybody may bind.",
    )
    excluded_namespaces: tuple[str, ...] = texts(
        "binding-admission-exclude-namespaces",
        ("kube-system",),
        "The namespaces where everybody may bind; they win over --binding-admission-namespaces.",
    )
    bypass_labels: tuple[str, ...] = texts(
        "binding-admission-bypass-labels",
        (BINDING_ADMISSION_BYPASS,),
        "Pods with such a label may be bound by anybody.",
    )
    bypass_annotations: tuple[str, ...] = texts(
        "binding-admission-bypass-annotations", (), "Pods with such an annotation may be bound by anybody."
    )


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
