"""Mutating webhooks: one after the other, each sees what those before it made of the object.

When one changed the object, built-in admission looks at it once more, and so do, in a second and last round, webhooks
that asked for that (``reinvocationPolicy: IfNeeded``) and were called before the change.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from koordinator.api.document import Document, copied, same
from koordinator.cluster.admission_webhooks.caller import Caller
from koordinator.cluster.admission_webhooks.configuration import Webhook
from koordinator.cluster.admission_webhooks.failures import CallError, internal_error, quoted, timed_out
from koordinator.cluster.admission_webhooks.matching import Invocation, convert, selects
from koordinator.cluster.admission_webhooks.review import Answer
from koordinator.cluster.errors import ApiError
from koordinator.cluster.patch.operations import OperationError, apply_operations
from koordinator.cluster.verbs.admission import Attributes

_LOG = logging.getLogger(__name__)


class _Reinvocations:
    """Who is to be called again: whoever wants to be and was called before something changed."""

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
    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def run(self, candidates: Sequence[Invocation], attributes: Attributes) -> None:
        """Change ``attributes.obj`` in place. Raises ApiError."""
        state = _Reinvocations()
        for candidate in candidates:
            await self._invoke(candidate, attributes, state)
        if not state.changed:
            return
        before = copied(attributes.obj)
        _readmit(attributes)
        if not same(attributes.obj, before):
            state.note_change()
        for candidate in candidates:
            # Grows while this round goes on: a change in it is heard of by those that come later.
            if candidate.webhook.uid in state.due:
                await self._invoke(candidate, attributes, state)

    async def _invoke(self, invocation: Invocation, attributes: Attributes, state: _Reinvocations) -> None:
        webhook = invocation.webhook
        if not selects(webhook, attributes):
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
        asked, wanted = attributes.target.resource, invocation.resource
        obj = convert(attributes.obj, asked, wanted)
        answer = await self._caller.call(invocation, attributes, obj, mutating=True)
        patched = _patched(invocation, answer, obj)
        # Compared before defaults come back: what took one away has changed the object, too.
        if patched is None or same(patched, obj):
            return False
        result = convert(_with_defaults(invocation, patched), wanted, asked)
        assert result is not None
        assert attributes.obj is not None
        attributes.obj.clear()
        attributes.obj.update(result)
        return True


def _patched(invocation: Invocation, answer: Answer, obj: Document | None) -> Document | None:
    """The patched object; None when there is no patch. Raises CallError and ApiError."""
    name = invocation.webhook.name
    operations = _operations(name, answer.patch)
    if not operations:
        return None
    if obj is None:
        what = "attempted to modify the object, which is not supported for this operation"
        raise internal_error(f"admission webhook {quoted(name)} {what}")
    if answer.patch_type != "JSONPatch":
        raise CallError(name, f"unsupported patch type {quoted(answer.patch_type)}")
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


def _readmit(attributes: Attributes) -> None:
    """Built-in admission of the changed object."""
    obj, target = attributes.obj, attributes.target
    if obj is None or target.subresource:
        return
    if attributes.old is None:
        target.resource.strategy.admit(obj, attributes.context)
    else:
        target.resource.strategy.admit_update(obj, attributes.old, attributes.context)
