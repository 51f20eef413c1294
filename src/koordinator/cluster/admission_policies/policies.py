"""The policies of one server: followed as they change, and asked about each request before validating webhooks are."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from koordinator.api.document import Document
from koordinator.cluster.admission_policies.constraints import Binding, Constraints
from koordinator.cluster.admission_policies.parameters import ParameterError, parameters
from koordinator.cluster.admission_webhooks import review
from koordinator.cluster.admission_webhooks.configuration import Followed
from koordinator.cluster.admission_webhooks.matching import convert, is_exempt, named, selects
from koordinator.cluster.errors import ApiError, forbidden
from koordinator.cluster.resource import Registry, Resource
from koordinator.cluster.storage.interface import Storage
from koordinator.cluster.verbs.environment import Attributes, bounded

if TYPE_CHECKING:
    # What compiles and evaluates expressions is loaded where there is a policy.
    from koordinator.cluster.admission_expressions.authorization import Decide
    from koordinator.cluster.admission_expressions.bindings import Subject
    from koordinator.cluster.admission_policies.policy import Denial, Policy

_LOG = logging.getLogger(__name__)
POLICIES: Final = "validatingadmissionpolicies"
BINDINGS: Final = "validatingadmissionpolicybindings"
_CODES: Final[Mapping[str, int]] = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}


def _policy(document: Document) -> Policy:
    from koordinator.cluster.admission_policies.policy import Policy

    return Policy(document)


class AdmissionPolicies:
    def __init__(self, storage: Storage, registry: Registry, decide: Decide, in_force: set[str]) -> None:
        self._storage = storage
        self._registry = registry
        self._decide = decide
        self._policies = Followed(storage, registry, POLICIES, _policy, in_force)
        self._bindings = Followed(storage, registry, BINDINGS, Binding, in_force)

    def followed(self) -> Mapping[str, Followed[Any]]:
        """By the plural of their kind; the server watches each until the store closes."""
        return {POLICIES: self._policies, BINDINGS: self._bindings}

    async def validate(self, attributes: Attributes) -> None:
        """Raises ApiError for the first refusal; the warnings of others go to the client."""
        if not self._bindings.objects or is_exempt(attributes.target.resource):
            return
        refusal: ApiError | None = None
        for policy in self._policies.objects:
            bindings = [binding for binding in self._bindings.objects if binding.policy == policy.name]
            resource = self._concerns(policy.constraints, attributes) if bindings else None
            if resource is None:
                continue
            for binding in bindings:
                if binding.constraints is None or self._concerns(binding.constraints, attributes) is not None:
                    found = await self._bound(policy, binding, resource, attributes)
                    refusal = refusal or found
        if refusal is not None:
            raise refusal

    def _concerns(self, constraints: Constraints, attributes: Attributes) -> Resource | None:
        """The version of the resource to show; None where the request is none of theirs."""
        if not selects(constraints, attributes):
            return None
        excluded = Constraints(constraints.excluded, (), constraints.equivalent, None, None)
        name = attributes.target.name
        if constraints.excluded and named(excluded, attributes, self._registry, name) is not None:
            return None
        if not constraints.rules:
            return attributes.target.resource
        return named(constraints, attributes, self._registry, name)

    async def _bound(
        self, policy: Policy, binding: Binding, resource: Resource, attributes: Attributes
    ) -> ApiError | None:
        """What a policy says where a binding puts it in force."""
        where = f"ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}'"
        try:
            found = parameters(policy.parameter_kind, binding, attributes.namespace, self._storage, self._registry)
        except ParameterError as error:
            denials = policy.failure(f"failed to configure {error}")
            if error.of_policy:
                where = f"ValidatingAdmissionPolicy '{policy.name}'"
            return _refusal(attributes, where, denials[0]) if denials else None
        subject = await self._subject(resource, attributes)
        denials = []
        for parameter in found:
            denials += await bounded(lambda p=parameter: policy.decide({**subject.variables(), "params": p}))  # type: ignore[misc]
        if "Warn" in binding.actions:
            texts = [f"Validation failed for {where}: {denial.message}" for denial in denials]
            attributes.request.warnings.extend(text for text in texts if text not in attributes.request.warnings)
        return _refusal(attributes, where, denials[0]) if denials and "Deny" in binding.actions else None

    async def _subject(self, resource: Resource, attributes: Attributes) -> Subject:
        from koordinator.cluster.admission_expressions.bindings import Subject

        target = attributes.target
        obj, old = [await convert(of, target.resource, resource) for of in (attributes.obj, attributes.old)]
        namespace = None
        if target.resource.namespaced and attributes.namespace:
            namespace = attributes.context.lookup("", "namespaces", None, attributes.namespace)
        request = review.question(attributes, resource, (obj, old))
        return Subject(request, attributes.request.user, self._decide, namespace)


def _refusal(attributes: Attributes, where: str, denial: Denial) -> ApiError:
    message = f"{where} denied request: {denial.message}"
    error = forbidden(attributes.target.resource, attributes.target.name, message)
    error.reason = denial.reason or "Invalid"
    error.code = _CODES.get(error.reason, 422)
    error.details["causes"] = [{"message": message}]
    return error
