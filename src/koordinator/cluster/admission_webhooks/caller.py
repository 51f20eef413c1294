"""One call of one webhook: dry run, review, time limit, verdict."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from koordinator.api.document import Document
from koordinator.base.clock import Clock
from koordinator.cluster.admission_webhooks import review
from koordinator.cluster.admission_webhooks.client import RequestError, WebhookClient
from koordinator.cluster.admission_webhooks.failures import CallError, dry_run_unsupported, quoted, timed_out
from koordinator.cluster.admission_webhooks.matching import Invocation, convert
from koordinator.cluster.errors import ApiError
from koordinator.cluster.verbs.admission import Attributes

_MAX_WARNINGS: Final = 4096
"""Of one answer that are kept; an answer to a client has no room for more."""


class Caller:
    """``user`` is who all requests come from; the embedded API knows one."""

    def __init__(self, client: WebhookClient, clock: Clock, new_uid: Callable[[], str], user: Document) -> None:
        self._client = client
        self._clock = clock
        self._new_uid = new_uid
        self._user = user

    async def call(
        self, invocation: Invocation, attributes: Attributes, obj: Document | None, *, mutating: bool
    ) -> review.Answer:
        """Ask about ``obj``, which is in the webhook's version already.

        Raises CallError when there is no usable answer, and ApiError: when the webhook refuses, when it cannot do a
        dry run, and when the request's own time is over.
        """
        webhook = invocation.webhook
        if attributes.request.dry_run and not webhook.without_side_effects:
            raise dry_run_unsupported(webhook.name)
        timeout = self._timeout(invocation, attributes)
        try:
            answer = await self._ask(invocation, attributes, obj, timeout, mutating=mutating)
        except review.InvalidAnswer as error:
            raise CallError(webhook.name, f"received invalid webhook response: {error}") from error
        except (RequestError, review.UndecodableAnswer) as error:
            raise CallError(webhook.name, str(error)) from error
        # Two webhooks, or two attempts at one write, may say the same.
        told = attributes.request.warnings
        known = set(told)
        told.extend(
            islice((warning for warning in dict.fromkeys(answer.warnings) if warning not in known), _MAX_WARNINGS)
        )
        if not answer.allowed:
            raise _denied(webhook.name, answer.refusal)
        return answer

    async def _ask(
        self,
        invocation: Invocation,
        attributes: Attributes,
        obj: Document | None,
        timeout: float,
        *,
        mutating: bool,
    ) -> review.Answer:
        webhook = invocation.webhook
        try:
            version = review.preferred_version(webhook.review_versions)
        except review.InvalidAnswer as error:
            raise RequestError(f"could not create admission objects: {error}") from error
        old = convert(attributes.old, attributes.target.resource, invocation.resource)
        uid = self._new_uid()
        request = review.question(attributes, invocation.resource, (obj, old), self._user)
        body = await self._client.post(webhook.client, review.encode(request, version, uid), timeout)
        try:
            return review.understand(body, version, uid, mutating=mutating)
        except review.UndecodableAnswer as error:
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
