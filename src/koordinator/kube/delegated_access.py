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

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Generic, TypeVar

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
from koordinator.base.token_bucket import TokenBucket
from koordinator.kube.errors import KubeError
from koordinator.kube.interface import Client
from koordinator.kube.pages import PageError, Request
from koordinator.kube.secure_options import AccessOptions

logger = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

ANONYMOUS: Final = UserInfo(username="system:anonymous", groups=["system:unauthenticated"])
_AUTHENTICATED: Final = "system:authenticated"
_BEARER: Final = "bearer "
_LONGEST_TOKEN: Final = 16 << 10
_PAGES: Final = "/pages"
_LONGEST_PATH: Final = 2048
_MOST_ANSWERS: Final = 1024
_QUESTIONS_PER_SECOND: Final = 20.0
_QUESTIONS_AT_ONCE: Final = 50
_AGAIN: Final = {"Retry-After": "1"}
_TOKENS: Final = "TokenReviews"
_RIGHTS: Final = "SubjectAccessReviews"
_SECONDS_GOOD: Final = 600.0
"""For so long after its last good answer, a question is put again without waiting."""


class DelegatedAccess:
    """Admits requests or refuses them. ``reviewing`` may create TokenReviews, ``authorizing`` SubjectAccessReviews:
    both are rights of the ClusterRole system:auth-delegator."""

    def __init__(self, reviewing: Client, authorizing: Client, clock: Clock, options: AccessOptions) -> None:
        self._reviewing, self._authorizing = reviewing, authorizing
        self._options = options
        self._tokens = _Answers[bytes, "UserInfo | None"](clock)
        self._rights = _Answers[tuple[str, ...], bool](clock)
        self._rights_of_anybody = _Answers[tuple[str, ...], bool](clock)
        self._unanswered = {what: SaidOnce(logger) for what in (_TOKENS, _RIGHTS)}

    async def admit(self, request: Request) -> None:
        """Raises PageError: 401 for a token that is none, 403 without the right, 429 when strangers ask too often, 503
        while the API server does not answer."""
        user = await self._user(request)
        if _is_open(request.path, self._options.open_paths):
            return
        verb = request.method.lower()
        path = _path_of_the_right(request.path)
        if len(path) > _LONGEST_PATH or not await self._may(user, verb, path):
            text = f'forbidden: User "{user.username}" cannot {verb} path "{path[:_LONGEST_PATH]}"\n'
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
            raise PageError(503, "the API server does not say who may see this now\n", _AGAIN) from error
        said.end()
        return answer


class _Answers(Generic[K, V]):
    """Answers by question, each for its time; a question is under way once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._strangers = TokenBucket(clock, _QUESTIONS_PER_SECOND, _QUESTIONS_AT_ONCE)
        self._known: OrderedDict[K, tuple[V, float]] = OrderedDict()
        """With the time until which each counts."""
        self._good: OrderedDict[K, float] = OrderedDict()
        """The time of the last good answer."""
        self._asking: dict[K, asyncio.Task[V]] = {}

    async def get(
        self, key: K, ask: Callable[[], Awaitable[V]], ttl: Callable[[V], float], is_good: Callable[[V], bool]
    ) -> V:
        now = self._clock.monotonic()
        found = self._known.get(key)
        if found is not None and now < found[1]:
            return found[0]
        task = self._asking.get(key)
        if task is None:
            if now - self._good.get(key, -_SECONDS_GOOD) >= _SECONDS_GOOD and not self._strangers.take():
                raise PageError(429, f"429: {HTTPStatus(429).phrase}\n", _AGAIN)
            task = asyncio.create_task(self._put(key, ask, ttl, is_good), name="ask the API server")
            self._asking[key] = task
            task.add_done_callback(lambda done: self._answered(key, done))
        # A client that goes does not take the answer from the others.
        return await asyncio.shield(task)

    def _answered(self, key: K, task: asyncio.Task[V]) -> None:
        self._asking.pop(key, None)
        if not task.cancelled():
            # Where all clients have gone meanwhile, nobody else takes note of an error, which was logged already.
            task.exception()

    async def _put(
        self, key: K, ask: Callable[[], Awaitable[V]], ttl: Callable[[V], float], is_good: Callable[[V], bool]
    ) -> V:
        value = await ask()
        now = self._clock.monotonic()
        _keep(self._known, key, (value, now + ttl(value)))
        if is_good(value):
            _keep(self._good, key, now)
        else:
            self._good.pop(key, None)
        return value


def _keep(answers: OrderedDict[K, V], key: K, value: V) -> None:
    answers[key] = value
    answers.move_to_end(key)
    if len(answers) > _MOST_ANSWERS:
        answers.popitem(last=False)


def _path_of_the_right(path: str) -> str:
    """What a ClusterRole has to name. Everybody with a token may get paths like those below which an API server has its
    APIs (system:discovery), so that a right to them says nothing about pages of a program."""
    return f"{_PAGES}{path}" if path.split("/", 2)[1:2] == ["apis"] else path


def _is_open(path: str, patterns: tuple[str, ...]) -> bool:
    return any(path.startswith(each[:-1]) if each.endswith("*") else path == each for each in patterns)


def _unauthorized() -> PageError:
    return PageError(401, "401: Unauthorized\n", {"WWW-Authenticate": "Bearer"})
