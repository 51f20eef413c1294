"""TokenReview and SubjectAccessReview: questions to the API server about who somebody is, and what they may do."""

from __future__ import annotations

from typing import Final

from koordinator.api.meta import Object, WireStruct

AUDIENCE: Final = "koordinator.sh"
"""Of tokens that are good at the pages of our programs, and nowhere else."""
TOKEN_HEADER: Final = "X-Koordinator-Token"  # noqa: S105  # a name
"""The header of such a token: an API server that forwards a request removes the usual one, which was for itself."""


class UserInfo(WireStruct):
    """Who somebody is, as the API server's authenticators have it."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class TokenReviewSpec(WireStruct):
    token: str = ""
    audiences: list[str] = []
    """For whom the token has to be made; empty for the API server."""


class TokenReviewStatus(WireStruct):
    authenticated: bool = False
    user: UserInfo = UserInfo()
    audiences: list[str] = []
    error: str = ""


class TokenReview(Object):
    """Whose token is this? Never logged."""

    spec: TokenReviewSpec = TokenReviewSpec()
    status: TokenReviewStatus = TokenReviewStatus()


class NonResourceAttributes(WireStruct):
    path: str = ""
    verb: str = ""
    """The method of the request, in small letters."""


class SubjectAccessReviewSpec(WireStruct):
    user: str = ""
    groups: list[str] = []
    uid: str = ""
    extra: dict[str, list[str]] = {}
    non_resource_attributes: NonResourceAttributes = NonResourceAttributes()


class SubjectAccessReviewStatus(WireStruct):
    allowed: bool = False
    denied: bool = False
    reason: str = ""
    evaluation_error: str = ""


class SubjectAccessReview(Object):
    """May this user do that?"""

    spec: SubjectAccessReviewSpec = SubjectAccessReviewSpec()
    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()


class ResourceAttributes(WireStruct):
    verb: str = ""
    group: str = ""
    resource: str = ""
    """The plural of a kind."""
    subresource: str = ""
    namespace: str = ""
    """Empty for all namespaces, and for kinds without any."""
    name: str = ""


class SelfSubjectAccessReviewSpec(WireStruct):
    """About one of the two."""

    resource_attributes: ResourceAttributes | None = None
    non_resource_attributes: NonResourceAttributes | None = None


class SelfSubjectAccessReview(Object):
    """May I do that?"""

    spec: SelfSubjectAccessReviewSpec = SelfSubjectAccessReviewSpec()
    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()
