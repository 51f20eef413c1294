"""Who may see the pages of a program on a cluster: the API server is asked, as by every Kubernetes component.

A client shows a bearer token, which a TokenReview gives a name (in ``TOKEN_HEADER`` one that is made for our programs
alone, as requests have it that an API server forwards), or a certificate of the cluster's authority for
clients; one that shows nothing is ``system:anonymous``. A SubjectAccessReview says whether that user may do this with
the path (``nonResourceURLs`` of a ClusterRole). The paths of probes are open. Answers are kept for some seconds.

Nobody can use up the questions of those who are known: a client whose token or whose right was good a short while ago
is asked about again in any case. Unknown tokens, the rights of users, and those of whoever has shown nothing have a
number of questions a second each, beyond which they are told to come back.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable
from typing import Final, TypeVar

from koordinator.api.kinds import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from koordinator.api.reviews import (
    AUDIENCE,
    TOKEN_HEADER,
    NonResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
    TokenReview,
    TokenReviewSpec,
    UserInfo,
)
from koordinator.base.clock import Clock
from koordinator.base.said_once import SaidOnce
from koordinator.kube.errors import KubeError
from koordinator.kube.interface import Client
from koordinator.kube.kept_answers import AGAIN, KeptAnswers
from koordinator.kube.pages import PageError, Request
from koordinator.kube.secure_serving import AccessOptions

logger = logging.getLogger(__name__)

V = TypeVar("V")

ANONYMOUS: Final = UserInfo(username="system:anonymous", groups=["system:unauthenticated"])
_AUTHENTICATED: Final = "system:authenticated"
_BEARER: Final = "bearer "
_LONGEST_TOKEN: Final = 16 << 10
_LONGEST_PATH: Final = 2048
_TOKENS: Final = "TokenReviews"
_RIGHTS: Final = "SubjectAccessReviews"


class DelegatedAccess:
    """Admits requests or refuses them. ``reviewing`` may create TokenReviews, ``authorizing`` SubjectAccessReviews:
    both are rights of the ClusterRole system:auth-delegator."""

    def __init__(self, reviewing: Client, authorizing: Client, clock: Clock, options: AccessOptions) -> None:
        self._reviewing, self._authorizing = reviewing, authorizing
        self._options = options
        self._tokens = KeptAnswers[bytes, "UserInfo | None"](clock)
        self._rights = KeptAnswers[tuple[str, ...], bool](clock)
        self._rights_of_anybody = KeptAnswers[tuple[str, ...], bool](clock)
        self._unanswered = {what: SaidOnce(logger) for what in (_TOKENS, _RIGHTS)}

    async def admit(self, request: Request) -> None:
        """Raises PageError: 401 for a token that is none, 403 without the right, 429 when strangers ask too often, 503
        while the API server does not answer."""
        user = await self._user(request)
        if is_open(request.path, self._options.open_paths):
            return
        verb = request.method.lower()
        if len(request.path) > _LONGEST_PATH or not await self._may(user, verb, request.path):
            text = f'forbidden: User "{user.username}" cannot {verb} path "{request.path[:_LONGEST_PATH]}"\n'
            raise PageError(403, text, {"X-Content-Type-Options": "nosniff"})

    async def _user(self, request: Request) -> UserInfo:
        if request.client is not None:
            name, groups = request.client
            return UserInfo(username=name, groups=[*groups, _AUTHENTICATED])
        token, audiences = request.headers.get(TOKEN_HEADER, ""), [AUDIENCE]
        if not token:
            value, audiences = request.headers.get("Authorization", ""), []
            if value[: len(_BEARER)].lower() != _BEARER:
                return ANONYMOUS
            token = value[len(_BEARER) :].strip()
        if not token or len(token) > _LONGEST_TOKEN:
            raise _unauthorized()
        # Not the token: what is in memory for long may end up in a dump.
        key = hashlib.sha256(f"{audiences} {token}".encode()).digest()
        ttl = self._options.token_ttl
        user = await self._tokens.get(
            key, lambda: self._review(token, audiences), lambda _: ttl, lambda found: found is not None
        )
        if user is None:
            raise _unauthorized()
        return user

    async def _review(self, token: str, audiences: list[str]) -> UserInfo | None:
        body = TokenReview(spec=TokenReviewSpec(token=token, audiences=audiences))
        status = (await self._ask(self._reviewing.create(TOKEN_REVIEWS, body), _TOKENS)).status
        # A server that knows nothing of audiences names none: its word is not about ours.
        is_for_us = not audiences or bool(set(audiences) & set(status.audiences))
        return status.user if status.authenticated and is_for_us else None

    async def _may(self, user: UserInfo, verb: str, path: str) -> bool:
        async def ask() -> bool:
            asked = NonResourceAttributes(path=path, verb=verb)
            spec = SubjectAccessReviewSpec(user.username, user.groups, user.uid, user.extra, asked)
            body = SubjectAccessReview(spec=spec)
            found = await self._ask(self._authorizing.create(SUBJECT_ACCESS_REVIEWS, body), _RIGHTS)
            return found.status.allowed and not found.status.denied

        options = self._options
        key = (user.username, user.uid, *sorted(user.groups), repr(sorted(user.extra.items())), verb, path)
        answers = self._rights_of_anybody if user is ANONYMOUS else self._rights
        return await answers.get(
            key, ask, lambda allowed: options.authorized_ttl if allowed else options.unauthorized_ttl, bool
        )

    async def _ask(self, question: Awaitable[V], what: str) -> V:
        said = self._unanswered[what]
        try:
            answer = await question
        except KubeError as error:
            with said.round():
                said.say(f"pages are refused, since the API server answers no {what}: {error}", about=what)
            raise PageError(503, "the API server does not say who may see this now\n", AGAIN) from error
        said.end()
        return answer


def is_open(path: str, patterns: tuple[str, ...]) -> bool:
    """Whether a path is one of those; ``*`` at the end of one stands for all that follows."""
    return any(path.startswith(each[:-1]) if each.endswith("*") else path == each for each in patterns)


def _unauthorized() -> PageError:
    return PageError(401, "401: Unauthorized\n", {"WWW-Authenticate": "Bearer"})
