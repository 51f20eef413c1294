"""The admission webhooks of one server, as its verbs call them: mutating webhooks in order, validating ones at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, Final

import msgspec

from koordinator.api.document import Document, copied, same
from koordinator.base.clock import Clock
from koordinator.cluster.access.identity import User
from koordinator.cluster.access.policy import Decision
from koordinator.cluster.access.rules import AccessRequest
from koordinator.cluster.admission_policies.policies import AdmissionPolicies
from koordinator.cluster.admission_webhooks import review
from koordinator.cluster.admission_webhooks.client import RequestError, WebhookClient
from koordinator.cluster.admission_webhooks.configuration import (
    MUTATING,
    VALIDATING,
    ClientConfig,
    Followed,
    Webhook,
    webhooks_of,
)
from koordinator.cluster.admission_webhooks.connection import ServiceResolver
from koordinator.cluster.admission_webhooks.matching import Candidates, Invocation, convert, selects
from koordinator.cluster.admission_webhooks.review import (
    AdmissionResponse,
    CallError,
    dry_run_unsupported,
    internal_error,
    quoted,
    timed_out,
)
from koordinator.cluster.errors import ApiError, forbidden
from koordinator.cluster.json_patch import OperationError, apply_operations
from koordinator.cluster.resource import Registry
from koordinator.cluster.storage.interface import Storage
from koordinator.cluster.verbs.environment import Admission, Attributes, bounded, plugins_mutate
from koordinator.cluster.verbs.target import new_uid

if TYPE_CHECKING:
    # What compiles and evaluates expressions is loaded where there are some.
    from koordinator.cluster.admission_expressions.authorization import Decide

# One call of one webhook: dry run, review, time limit, result.


_MAX_WARNINGS: Final = 4096
"""Of one response that are kept; a response to a client cannot carry more."""


class Caller:
    def __init__(self, client: WebhookClient, clock: Clock, new_uid: Callable[[], str], decide: Decide) -> None:
        self._client = client
        self._clock = clock
        self._new_uid = new_uid
        self._decide = decide

    async def concerns(self, invocation: Invocation, attributes: Attributes) -> bool:
        """Whether the selectors and the conditions of the webhook let the request come to it. Raises ApiError."""
        conditions, target = invocation.webhook.conditions, attributes.target
        if not selects(invocation.webhook, attributes):
            return False
        if conditions is None:
            return True
        from koordinator.cluster.admission_expressions.bindings import Subject
        from koordinator.cluster.admission_expressions.match_conditions import ConditionError

        objects = [await convert(obj, target.resource, invocation.resource) for obj in (attributes.obj, attributes.old)]
        request = review.question(attributes, invocation.resource, (objects[0], objects[1]))
        subject = Subject(request, attributes.request.user, self._decide)
        try:
            return await bounded(lambda: conditions.hold(subject.variables()))
        except ConditionError as error:
            if invocation.webhook.fails_closed:
                raise forbidden(target.resource, target.name, str(error)) from error
            return False

    async def call(
        self, invocation: Invocation, attributes: Attributes, obj: Document | None, *, mutating: bool
    ) -> review.AdmissionResponse:
        """Call the webhook for ``obj``, which is in the webhook's version already.

        Raises CallError when there is no usable response, and ApiError: when the webhook refuses, when it cannot do a
        dry run, and when the request's own time is over.
        """
        webhook = invocation.webhook
        if attributes.request.dry_run and not webhook.without_side_effects:
            raise dry_run_unsupported(webhook.name)
        timeout = self._timeout(invocation, attributes)
        try:
            response = await self._send(invocation, attributes, obj, timeout, mutating=mutating)
        except review.InvalidResponse as error:
            raise CallError(webhook.name, f"received invalid webhook response: {error}") from error
        except (RequestError, review.UndecodableResponse) as error:
            raise CallError(webhook.name, str(error)) from error
        # Two webhooks, or two attempts at one write, may say the same.
        sent = attributes.request.warnings
        known = set(sent)
        sent.extend(
            islice((warning for warning in dict.fromkeys(response.warnings) if warning not in known), _MAX_WARNINGS)
        )
        if not response.allowed:
            raise _denied(webhook.name, response.refusal)
        return response

    async def _send(
        self,
        invocation: Invocation,
        attributes: Attributes,
        obj: Document | None,
        timeout: float,
        *,
        mutating: bool,
    ) -> review.AdmissionResponse:
        webhook = invocation.webhook
        try:
            version = review.preferred_version(webhook.review_versions)
        except review.InvalidResponse as error:
            raise RequestError(f"could not create admission objects: {error}") from error
        old = await convert(attributes.old, attributes.target.resource, invocation.resource)
        uid = self._new_uid()
        request = review.question(attributes, invocation.resource, (obj, old))
        body = await self._client.post(webhook.client, review.encode(request, version, uid), timeout)
        try:
            return review.parse_response(body, version, uid, mutating=mutating)
        except review.UndecodableResponse as error:
            raise RequestError(f"failed to call webhook: {error}") from error

    def _timeout(self, invocation: Invocation, attributes: Attributes) -> float:
        """Seconds: the webhook's own limit or what is left of the request's, whichever is less."""
        limit = float(invocation.webhook.timeout_seconds)
        deadline = attributes.request.deadline
        if deadline is None:
            return limit
        left = deadline - self._clock.monotonic()
        if left <= 0:
            raise timed_out()
        return min(limit, left)

    def is_over(self, attributes: Attributes) -> bool:
        """Whether the request's own time is over, so that nothing further is worth a call."""
        deadline = attributes.request.deadline
        return deadline is not None and self._clock.monotonic() >= deadline


def _denied(webhook: str, refusal: review.Refusal) -> ApiError:
    """The webhook's own Status, with the webhook named in front of its words."""
    by = f"admission webhook {quoted(webhook)} denied the request"
    explanation = refusal.message or refusal.reason
    message = f"{by}: {explanation}" if explanation else f"{by} without explanation"
    return ApiError(max(refusal.code or 0, 400), refusal.reason or "", message, refusal.details)


# Mutating webhooks: one after the other, each sees what those before it made of the object.
# When one changed the object, built-in admission runs once more, and so do, in a second and last round, the webhooks
# with ``reinvocationPolicy: IfNeeded`` that were called before the change.


_LOG = logging.getLogger(__name__)


class _Reinvocations:
    """The webhooks to call again: those with the policy that were called before something changed."""

    def __init__(self) -> None:
        self._called: set[str] = set()
        self.due: set[str] = set()
        self.changed = False

    def note_change(self) -> None:
        self.due |= self._called
        self._called = set()

    def note_call(self, webhook: Webhook, *, changed: bool) -> None:
        if changed:
            self.changed = True
            self.note_change()
        if webhook.reinvocable:
            self._called.add(webhook.uid)


class MutatingWebhooks:
    def __init__(self, caller: Caller, built_in: Admission) -> None:
        """``built_in`` is the chain that the object has been through already."""
        self._caller = caller
        self._built_in = built_in

    async def run(self, candidates: Sequence[Invocation], attributes: Attributes) -> None:
        """Change ``attributes.obj`` in place. Raises ApiError."""
        state = _Reinvocations()
        for candidate in candidates:
            await self._invoke(candidate, attributes, state)
        if not state.changed:
            return
        before = copied(attributes.obj)
        await plugins_mutate(self._built_in, attributes)
        if not same(attributes.obj, before):
            state.note_change()
        for candidate in candidates:
            # Grows during this round: webhooks that come later see a change in it.
            if candidate.webhook.uid in state.due:
                await self._invoke(candidate, attributes, state)

    async def _invoke(self, invocation: Invocation, attributes: Attributes, state: _Reinvocations) -> None:
        webhook = invocation.webhook
        if not await self._caller.concerns(invocation, attributes):
            return
        changed = False
        try:
            changed = await self._call(invocation, attributes)
        except CallError as error:
            if self._caller.is_over(attributes):
                raise timed_out() from error
            if webhook.fails_closed:
                raise internal_error(str(error)) from error
            _LOG.warning("%s; its failure policy lets the request pass", error)
        state.note_call(webhook, changed=changed)

    async def _call(self, invocation: Invocation, attributes: Attributes) -> bool:
        """True when the object was changed."""
        requested, wanted = attributes.target.resource, invocation.resource
        obj = await convert(attributes.obj, requested, wanted)
        response = await self._caller.call(invocation, attributes, obj, mutating=True)
        patched = _patched(invocation, response, obj)
        # Compared before defaults come back: what took one away has changed the object, too.
        if patched is None or same(patched, obj):
            return False
        result = await convert(_with_defaults(invocation, patched), wanted, requested)
        assert result is not None
        assert attributes.obj is not None
        attributes.obj.clear()
        attributes.obj.update(result)
        return True


def _patched(invocation: Invocation, response: AdmissionResponse, obj: Document | None) -> Document | None:
    """The patched object; None when there is no patch. Raises CallError and ApiError."""
    name = invocation.webhook.name
    operations = _operations(name, response.patch)
    if not operations:
        return None
    if obj is None:
        what = "attempted to modify the object, which is not supported for this operation"
        raise internal_error(f"admission webhook {quoted(name)} {what}")
    if response.patch_type != "JSONPatch":
        raise CallError(name, f"unsupported patch type {quoted(response.patch_type)}")
    try:
        patched = apply_operations(obj, operations)
    except OperationError as error:
        raise internal_error(str(error)) from error
    if not isinstance(patched, dict):
        raise internal_error("json: the patched object is not an object")
    return patched


def _with_defaults(invocation: Invocation, patched: Document) -> Document:
    """Decoded in place. Raises ApiError."""
    try:
        if patched.get("kind") == invocation.resource.kind:
            invocation.resource.strategy.decode(patched)
    except ApiError as error:
        raise internal_error(str(error.__cause__ or error)) from error
    return patched


def _operations(webhook: str, patch: bytes) -> list[object]:
    if not patch:
        return []
    try:
        return msgspec.json.decode(patch, type=list[object])
    except msgspec.DecodeError as error:
        raise CallError(webhook, f"received undecodable patch in webhook response: {error}") from error


# Validating webhooks: all at once, and one refusal is enough.


class ValidatingWebhooks:
    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def run(self, candidates: Sequence[Invocation], attributes: Attributes) -> None:
        """Raises ApiError: of several refusals that of the webhook that stands first."""
        invocations = [candidate for candidate in candidates if await self._caller.concerns(candidate, attributes)]
        if not invocations:
            return
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(self._refusal(invocation, attributes), name=f"webhook {invocation.webhook.name}")
                for invocation in invocations
            ]
        refusals = [refusal for call in calls if (refusal := call.result()) is not None]
        if self._caller.is_over(attributes):
            raise timed_out()
        if refusals:
            raise refusals[0]

    async def _refusal(self, invocation: Invocation, attributes: Attributes) -> ApiError | None:
        obj = await convert(attributes.obj, attributes.target.resource, invocation.resource)
        try:
            await self._caller.call(invocation, attributes, obj, mutating=False)
        except CallError as error:
            if invocation.webhook.fails_closed:
                return internal_error(str(error))
            _LOG.warning("%s; its failure policy lets the request pass", error)
        except ApiError as refusal:
            return refusal
        return None


def _permits(user: User, request: AccessRequest) -> Decision:
    """Where everything is permitted."""
    return Decision(True)


class AdmissionWebhooks:
    """``configurations`` returns what the server has to watch; ``close`` ends the connections."""

    def __init__(
        self,
        storage: Storage,
        registry: Registry,
        built_in: Admission,
        clock: Clock,
        random: Random,
        decide: Decide = _permits,
    ) -> None:
        """``built_in`` is the chain before the webhooks, which looks again at what they have changed. ``decide`` says
        what expressions ask of users' rights."""
        self._client = WebhookClient(ServiceResolver(storage, registry))
        caller = Caller(self._client, clock, lambda: new_uid(random), decide)
        self.in_force: set[str] = set()
        self._configurations = {
            plural: Followed(storage, registry, plural, webhooks_of, self.in_force) for plural in (MUTATING, VALIDATING)
        }
        self._to_mutate = Candidates(self._configurations[MUTATING], registry)
        self._to_validate = Candidates(self._configurations[VALIDATING], registry)
        self._policies = AdmissionPolicies(storage, registry, decide, self.in_force)
        self._mutating = MutatingWebhooks(caller, built_in)
        self._validating = ValidatingWebhooks(caller)

    def load(self) -> None:
        """Take in what is stored, before the first request."""
        for configurations in self.configurations().values():
            configurations.load()

    def configurations(self) -> Mapping[str, Followed[Any]]:
        """By the plural of their kind; the server watches each until the store closes."""
        return {**self._configurations, **self._policies.followed()}

    async def close(self) -> None:
        await self._client.close()

    async def post(self, client: ClientConfig, review: bytes, timeout: float) -> bytes:
        """A review of another kind. Raises RequestError."""
        return await self._client.post(client, review, timeout)

    def mutates(self, attributes: Attributes) -> bool:
        return bool(self._to_mutate.of(attributes))

    async def mutate(self, attributes: Attributes) -> None:
        await self._mutating.run(self._to_mutate.of(attributes), attributes)

    async def validate(self, attributes: Attributes) -> None:
        """Policies first, as in the real server."""
        await self._policies.validate(attributes)
        if candidates := self._to_validate.of(attributes):
            await self._validating.run(candidates, attributes)
