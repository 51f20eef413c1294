"""GET of an object or a collection: pages pinned to one revision, selectors, what ``resourceVersion`` promises."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError, bad_request, expired, not_found
from koordinator.cluster.storage.interface import Compacted, Page, Stored
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.options import ListOptions
from koordinator.cluster.verbs.selection import Selection
from koordinator.cluster.verbs.target import Target

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_NEWEST = -1
"""Revision of a token that continues a list with the newest state."""


@dataclass(frozen=True, slots=True)
class ObjectList:
    """Part of a collection, as of ``revision``."""

    items: Sequence[Stored]
    revision: int
    continue_token: str = ""
    remaining: int | None = None
    """Unknown (None) with selectors."""

    def metadata(self) -> Document:
        """metav1.ListMeta."""
        metadata: Document = {"resourceVersion": str(self.revision)}
        if self.continue_token:
            metadata["continue"] = self.continue_token
        if self.remaining is not None:
            metadata["remainingItemCount"] = self.remaining
        return metadata


class _Token(msgspec.Struct):
    rv: int
    start: str
    v: str = "meta.k8s.io/v1"


def list_objects(environment: Environment, target: Target, options: ListOptions) -> ObjectList:
    """Raises ApiError: 400 or 422 for bad options, 410 for a token or revision that is too old."""
    options.check_list()
    selection = Selection.parse(target, environment.selector_cache, options.label_selector, options.field_selector)
    prefix = selection.prefix(target)
    start, revision = _position(environment, target, options)
    try:
        # With a selector a page can take any number of keys, so all that follow are at hand.
        limit = options.limit if selection.everything else 0
        page = environment.storage.list(prefix, limit=limit, start=start, revision=revision)
    except Compacted:
        if start is None:
            raise expired("The resourceVersion for the provided list is too old.") from None
        raise expired(_TOO_OLD, continue_token=_token(_NEWEST, start)) from None
    if selection.everything:
        token = _token(page.revision, page.next_key) if page.next_key else ""
        return ObjectList(page.items, page.revision, token, page.remaining if token else None)
    return _selected(page, selection, options.limit)


def check_not_too_new(environment: Environment, revision: int | None) -> None:
    """A client may know a revision of a store that is gone; waiting for it would be waiting in vain."""
    current = environment.storage.revision()
    if revision is not None and revision > current:
        message = f"Timeout: Too large resource version: {revision}, current: {current}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        raise ApiError(504, "Timeout", message, {"causes": [cause]}, retry_after=1)


def _selected(page: Page, selection: Selection, limit: int) -> ObjectList:
    items: list[Stored] = []
    for stored in page.items:
        if selection.matches(stored):
            if limit and len(items) == limit:
                return ObjectList(items, page.revision, _token(page.revision, stored.key))
            items.append(stored)
    return ObjectList(items, page.revision)


def _position(environment: Environment, target: Target, options: ListOptions) -> tuple[str | None, int | None]:
    """Where the page starts and the revision that it is pinned to."""
    if options.continue_token:
        token = _parse_token(options.continue_token, target)
        if token.rv < 0:
            return token.start, None
        check_not_too_new(environment, token.rv)
        return token.start, token.rv
    check_not_too_new(environment, options.revision)
    exact = options.match == "Exact" or (options.limit > 0 and not options.match)
    return None, options.revision if exact and options.revision else None


def _token(revision: int, start: str) -> str:
    encoded = base64.urlsafe_b64encode(msgspec.json.encode(_Token(revision, start)))
    return encoded.decode().rstrip("=")


def _parse_token(text: str, target: Target) -> _Token:
    try:
        padded = text + "=" * (-len(text) % 4)
        token = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Token)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise bad_request("continue key is not valid: it was not made by this server") from None
    if not token.start.startswith(target.prefix):
        raise bad_request("continue key is not valid: it belongs to another list")
    return token


# GET of one object.


def get(environment: Environment, target: Target, options: ListOptions) -> Stored:
    """The newest state, which satisfies any ``resourceVersion`` that is not in the future. Raises ApiError 404."""
    check_not_too_new(environment, options.revision)
    stored = environment.storage.get(target.key)
    if stored is None:
        raise not_found(target.resource, target.name)
    return stored
