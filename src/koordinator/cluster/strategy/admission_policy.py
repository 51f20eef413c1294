"""ValidatingAdmissionPolicies and their bindings, when they are written; in the words of the real server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.api.names import dns_1035_label, dns_subdomain, label_key, path_segment
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy.causes import duplicate, forbidden, invalid, not_supported, required
from koordinator.cluster.strategy.expression_rules import check_expression, check_match_conditions
from koordinator.cluster.strategy.extension_kinds import ADMISSION_POLICY, ADMISSION_POLICY_BINDING
from koordinator.cluster.strategy.metadata import validate_label_selector
from koordinator.cluster.strategy.object_strategy import ObjectStrategy
from koordinator.cluster.strategy.webhook_configuration import ADMISSION_GROUP, validate_rule
from koordinator.model.cel.syntax import RESERVED
from koordinator.model.cel.types import DYN, Type

_API_VERSION: Final = f"{ADMISSION_GROUP}/v1"
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_MOST_ANNOTATIONS: Final = 20
_LONGEST_ANNOTATION: Final = 5 * 1024
_BREAKS: Final = re.compile(r"[\n\r]")
_IDENTIFIER: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*", re.ASCII)


class AdmissionPolicyStrategy(ObjectStrategy):
    def __init__(self) -> None:
        super().__init__(
            _API_VERSION,
            "ValidatingAdmissionPolicy",
            namespaced=False,
            status=True,
            generation=True,
            table=ADMISSION_POLICY,
        )

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        spec, before = obj["spec"], old["spec"] if old is not None else None
        if before is not None and spec == before:
            return []
        causes = _check_choice(spec.get("failurePolicy"), "spec.failurePolicy", ("Fail", "Ignore"))
        parameters = spec.get("paramKind")
        causes += _check_parameter_kind(parameters) if parameters is not None else []
        constraints = spec.get("matchConstraints")
        if constraints is None:
            causes.append(required("spec.matchConstraints"))
        else:
            causes += check_match_resources(constraints, "spec.matchConstraints")
            causes += [] if constraints.get("resourceRules") else [required("spec.matchConstraints.resourceRules")]
        causes += check_match_conditions(
            spec.get("matchConditions") or [], "spec.matchConditions", params=parameters is not None
        )
        return causes + _Expressions(obj["metadata"].get("name") or "", spec).causes()


class AdmissionPolicyBindingStrategy(ObjectStrategy):
    def __init__(self) -> None:
        super().__init__(
            _API_VERSION,
            "ValidatingAdmissionPolicyBinding",
            namespaced=False,
            generation=True,
            table=ADMISSION_POLICY_BINDING,
        )

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        spec = obj["spec"]
        name = spec.get("policyName") or ""
        causes = [invalid("spec.policyName", name, error) for error in dns_subdomain(name)] if name else [
            required("spec.policyName")
        ]  # fmt: skip
        if spec.get("paramRef") is not None:
            causes += _check_parameter(spec["paramRef"], "spec.paramRef")
        if spec.get("matchResources") is not None:
            # The real server misspells the path.
            causes += check_match_resources(spec["matchResources"], "spec.matchResouces")
        return causes + _check_actions(spec.get("validationActions") or [], "spec.validationActions")


def _check_choice(value: str | None, field: str, allowed: Sequence[str]) -> list[Cause]:
    if not value:
        return [required(field)]
    return [] if value in allowed else [not_supported(field, value, allowed)]


def check_match_resources(resources: Document, field: str) -> list[Cause]:
    causes = _check_choice(resources.get("matchPolicy"), f"{field}.matchPolicy", ("Equivalent", "Exact"))
    for name in ("namespaceSelector", "objectSelector"):
        causes += validate_label_selector(resources.get(name) or {}, f"{field}.{name}")
    for name in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(resources.get(name) or ()):
            causes += _check_names(rule.get("resourceNames") or [], f"{field}.{name}[{index}].resourceNames")
            causes += validate_rule(rule, f"{field}.{name}[{index}]")
    return causes


def _check_names(names: list[str], field: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, name in enumerate(names):
        causes += [invalid(f"{field}[{index}]", name, error) for error in path_segment(name)]
        causes += [duplicate(f"{field}[{index}]", name)] if name in names[:index] else []
    return causes


def _check_parameter_kind(kind: Document) -> list[Cause]:
    field, version = "spec.paramKind", kind.get("apiVersion") or ""
    group, _, rest = version.rpartition("/")
    causes: list[Cause] = []
    if not version:
        causes.append(required(f"{field}.apiVersion"))
    elif "/" in group:
        causes.append(invalid(f"{field}.apiVersion", version, f"unexpected GroupVersion string: {version}"))
    else:
        if group and (errors := dns_subdomain(group)):
            causes.append(invalid(f"{field}.apiVersion", group, ",".join(errors)))
        if errors := dns_1035_label(rest):
            causes.append(invalid(f"{field}.apiVersion", rest, ",".join(errors)))
    name = kind.get("kind") or ""
    if not name:
        return [*causes, required(f"{field}.kind")]
    if errors := dns_1035_label(name.lower()):
        why = f"may have mixed case, but should otherwise match: {','.join(errors)}"
        causes.append(invalid(f"{field}.kind", name, why))
    return causes


def _check_parameter(reference: Document, field: str) -> list[Cause]:
    name, selector = reference.get("name") or "", reference.get("selector")
    causes = [invalid(f"{field}.name", name, error) for error in path_segment(name)] if name else []
    exclusive = "name and selector are mutually exclusive"
    if name and selector is not None:
        causes.append(forbidden(f"{field}.name", exclusive))
    if selector is not None:
        causes += validate_label_selector(selector, f"{field}.selector")
        causes += [forbidden(f"{field}.selector", exclusive)] if name else []
    if not name and selector is None:
        causes.append(required(field, "one of name or selector must be specified"))
    return causes + _check_choice(
        reference.get("parameterNotFoundAction"), f"{field}.parameterNotFoundAction", ("Deny", "Allow")
    )


def _check_actions(actions: list[str], field: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, action in enumerate(actions):
        causes += [] if action in _ACTIONS else [not_supported(f"{field}[{index}]", action, _ACTIONS)]
        causes += [duplicate(f"{field}[{index}]", action)] if action in actions[:index] else []
    if "Deny" in actions and "Warn" in actions:
        why = "repeating the same validation failure information in the API response and headers serves no purpose"
        causes.append(invalid(field, actions, f"must not contain both Deny and Warn ({why})"))
    return causes if actions else [*causes, required(field, "at least one validation action is required")]


class _Expressions:
    """Those of a policy: each variable may name those before it, and all others name all of them."""

    def __init__(self, name: str, spec: Document) -> None:
        self._name = name
        self._spec = spec
        self._variables: dict[str, Type] = {}

    def causes(self) -> list[Cause]:
        causes: list[Cause] = []
        for index, variable in enumerate(self._spec.get("variables") or ()):
            causes += self._variable(variable, f"spec.variables[{index}]")
        validations, annotations = self._spec.get("validations") or [], self._spec.get("auditAnnotations") or []
        if not validations and not annotations:
            why = "validations or auditAnnotations must contain at least one item"
            return [*causes, required("spec.validations", why), required("spec.auditAnnotations", why)]
        for index, validation in enumerate(validations):
            causes += self._validation(validation, f"spec.validations[{index}]")
        if len(annotations) > _MOST_ANNOTATIONS:
            why = f"must not have more than {_MOST_ANNOTATIONS} auditAnnotations"
            return [*causes, invalid("spec.auditAnnotations", annotations, why)]
        for index, annotation in enumerate(annotations):
            causes += self._annotation(annotation, annotations[:index], f"spec.auditAnnotations[{index}]")
        return causes

    def _declarations(self, *, authorizer: bool = True) -> Any:
        from koordinator.cluster.admission_expressions.declarations import request_declarations

        return request_declarations(
            params=self._spec.get("paramKind") is not None,
            authorizer=authorizer,
            variables=self._variables if self._spec.get("variables") else None,
        )

    def _variable(self, variable: Document, field: str) -> list[Cause]:
        from koordinator.cluster.admission_expressions.compilation import compiled

        name, text = variable.get("name") or "", variable.get("expression") or ""
        causes: list[Cause] = []
        if not name.strip():
            causes.append(required(f"{field}.name", "name is not specified"))
        elif not _IDENTIFIER.fullmatch(name) or name in RESERVED:
            causes.append(invalid(f"{field}.name", name, "must be a valid CEL identifier"))
        if not text.strip():
            return [*causes, required(f"{field}.expression", "expression is not specified")]
        expression = compiled(text, self._declarations())
        self._variables[name] = expression.program.type if expression.program is not None else DYN
        return [*causes, invalid(f"{field}.expression", text, expression.error)] if expression.error else causes

    def _validation(self, validation: Document, field: str) -> list[Cause]:
        text, said = validation.get("expression") or "", validation.get("messageExpression") or ""
        message, reason = validation.get("message") or "", validation.get("reason")
        causes = [required(f"{field}.expression", "expression is not specified")]
        if text.strip():
            causes = check_expression(text, f"{field}.expression", self._declarations(), "bool")
        if said and not said.strip():
            causes.append(invalid(f"{field}.messageExpression", said, "must be non-empty if specified"))
        elif said:
            declarations = self._declarations(authorizer=False)
            causes += check_expression(said, f"{field}.messageExpression", declarations, "string")
        if message and not message.strip():
            causes.append(invalid(f"{field}.message", message, "must be non-empty if specified"))
        elif _BREAKS.search(message.strip()):
            causes.append(invalid(f"{field}.message", message, "must not contain line breaks"))
        if reason is not None and reason not in _REASONS:
            causes.append(not_supported(f"{field}.reason", reason, _REASONS))
        return causes

    def _annotation(self, annotation: Document, before: list[Document], field: str) -> list[Cause]:
        key, text = annotation.get("key") or "", (annotation.get("valueExpression") or "").strip()
        at = f"{field}.valueExpression"
        qualified = f"{self._name}/{key}"
        causes = [invalid(f"{field}.key", qualified, error) for error in label_key(qualified)]
        if not text:
            causes.append(required(at, "valueExpression is not specified"))
        elif len(text.encode()) > _LONGEST_ANNOTATION:
            causes.append(required(at, f"must not exceed {_LONGEST_ANNOTATION} bytes in length"))
        else:
            causes += check_expression(text, at, self._declarations(), "string", "null")
        return [*causes, duplicate(f"{field}.key", key)] if any(a.get("key") == key for a in before) else causes
