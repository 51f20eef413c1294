"""Kinds by which a cluster is extended: classes that other objects name, admission policies, aggregated APIs."""

from __future__ import annotations

from typing import Final

from koordinator.api.document import Document
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import invalid
from koordinator.cluster.strategy.object_strategy import ObjectStrategy, defaults_of
from koordinator.cluster.strategy.table import AGE, NAME, NONE, computed, lookup, table, text

_ADMISSION: Final = "io.k8s.api.admissionregistration.v1."
_REGISTRATION: Final = "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1."
_UNSET: Final = "<unset>"


@defaults_of(f"{_ADMISSION}ValidatingAdmissionPolicySpec")
def _policy(spec: Document) -> None:
    spec.setdefault("failurePolicy", "Fail")


@defaults_of(f"{_ADMISSION}MatchResources")
def _matched(resources: Document) -> None:
    resources.setdefault("matchPolicy", "Equivalent")
    resources.setdefault("namespaceSelector", {})
    resources.setdefault("objectSelector", {})
    for field in ("resourceRules", "excludeResourceRules"):
        for rule in resources.get(field) or []:
            rule.setdefault("scope", "*")


@defaults_of(f"{_REGISTRATION}ServiceReference")
def _service(reference: Document) -> None:
    reference.setdefault("port", 443)


class ApiServiceStrategy(ObjectStrategy):
    """Named for the version that it registers, of which there can be but one."""

    def __init__(self) -> None:
        api_version = "apiregistration.k8s.io/v1"
        super().__init__(api_version, "APIService", namespaced=False, status=True, table=_API_SERVICE)

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        spec, name = obj["spec"], obj["metadata"].get("name")
        expected = f"{spec.get('version') or ''}.{spec.get('group') or ''}"
        if name == expected:
            return []
        return [invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: "{expected}"')]


def _registered_by(obj: Document) -> str:
    service = obj["spec"].get("service")
    return f"{service.get('namespace') or ''}/{service.get('name') or ''}" if service else "Local"


def _available(obj: Document) -> str:
    for condition in lookup(obj, ("status", "conditions")) or []:
        if condition.get("type") == "Available":
            return "True" if condition.get("status") == "True" else f"False ({condition.get('reason') or ''})"
    return "Unknown"


def _parameter_kind(obj: Document) -> str:
    kind = obj["spec"].get("paramKind")
    return f"{kind.get('apiVersion') or ''}/{kind.get('kind') or ''}" if kind else _UNSET


def _parameter(obj: Document) -> str:
    reference = obj["spec"].get("paramRef")
    if not reference:
        return _UNSET
    name = reference.get("name") or "*"
    return f"{reference['namespace']}/{name}" if reference.get("namespace") else name


def _class_parameters(obj: Document) -> str:
    parameters = obj["spec"].get("parameters")
    if not parameters:
        return NONE
    group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
    return f"{parameters.get('kind') or ''}{group}/{parameters.get('name') or ''}"


RUNTIME_CLASS: Final = table(NAME, text("Handler", "handler"), AGE)
_API_SERVICE: Final = table(NAME, computed("Service", _registered_by), computed("Available", _available), AGE)
ADMISSION_POLICY: Final = table(
    NAME,
    computed("Validations", lambda obj: len(obj["spec"].get("validations") or []), "integer"),
    computed("ParamKind", _parameter_kind),
    AGE,
)
ADMISSION_POLICY_BINDING: Final = table(
    NAME, text("PolicyName", "spec.policyName"), computed("ParamRef", _parameter), AGE
)
INGRESS_CLASS: Final = table(
    NAME, text("Controller", "spec.controller"), computed("Parameters", _class_parameters), AGE
)
VOLUME_ATTRIBUTES_CLASS: Final = table(NAME, text("DriverName", "driverName"), AGE)
