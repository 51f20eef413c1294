"""Validating webhooks: all at once, and one refusal is enough."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from koordinator.cluster.admission_webhooks.caller import Caller
from koordinator.cluster.admission_webhooks.failures import CallError, internal_error, timed_out
from koordinator.cluster.admission_webhooks.matching import Invocation, convert, selects
from koordinator.cluster.errors import ApiError
from koordinator.cluster.verbs.admission import Attributes

_LOG = logging.getLogger(__name__)


class ValidatingWebhooks:
    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def run(self, candidates: Sequence[Invocation], attributes: Attributes) -> None:
        """Raises ApiError: of several refusals that of the webhook that stands first."""
        invocations = [candidate for candidate in candidates if selects(candidate.webhook, attributes)]
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
        obj = convert(attributes.obj, attributes.target.resource, invocation.resource)
        try:
            await self._caller.call(invocation, attributes, obj, mutating=False)
        except CallError as error:
            if invocation.webhook.fails_closed:
                return internal_error(str(error))
            _LOG.warning("%s; its failure policy lets the request pass", error)
        except ApiError as refusal:
            return refusal
        return None
