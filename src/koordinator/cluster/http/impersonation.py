"""``kubectl --as``: who may act as somebody else, and who that is then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from urllib.parse import unquote

from koordinator.cluster.access.authorizer import IMPERSONATE, Authorizer
from koordinator.cluster.access.identity import (
    ANONYMOUS_NAME,
    AUTHENTICATED,
    UNAUTHENTICATED,
    User,
    account_groups,
    split_account_name,
)
from koordinator.cluster.access.rules import AccessRequest
from koordinator.cluster.errors import bad_request
from koordinator.cluster.http.authorization import check_allowed

_PREFIX: Final = b"impersonate-"
_LENGTH: Final = len(_PREFIX)
_EXTRA: Final = "extra-"
_GROUP: Final = "authentication.k8s.io"


class _Wanted(NamedTuple):
    """What one header asks for."""

    kind: str
    """``user``, ``group``, ``uid``, or the key of an extra attribute after ``extra-``."""
    value: str


def acting_user(user: User, raw_headers: Iterable[tuple[bytes, bytes]], authorizer: Authorizer) -> User:
    """``user`` itself, or whom it acts as.

    Takes headers as they came: every request pays for this look at all names. Raises ApiError: 403, and 400 when groups
    or others are named without a user.
    """
    wanted = [
        _Wanted(name[_LENGTH:].decode(errors="replace").lower(), value.decode(errors="replace"))
        for name, value in raw_headers
        if name[_LENGTH - 1 : _LENGTH] == b"-" and name[:_LENGTH].lower() == _PREFIX
    ]
    return _impersonated(user, wanted, authorizer) if wanted else user


def _impersonated(user: User, wanted: list[_Wanted], authorizer: Authorizer) -> User:
    # An empty user or UID is none; of several, the first counts.
    name = next((each.value for each in wanted if each.kind == "user"), "")
    uid = next((each.value for each in wanted if each.kind == "uid"), "")
    groups = [each.value for each in wanted if each.kind == "group"]
    extra: dict[str, tuple[str, ...]] = {}
    for each in wanted:
        if each.kind.startswith(_EXTRA):
            key = unquote(each.kind.removeprefix(_EXTRA))
            extra[key] = (*extra.get(key, ()), each.value)
    if not name:
        if groups or extra or uid:
            raise bad_request(f"requested [{_listed(groups, extra, uid)}] without impersonating a user")
        return user
    for request in _requests(name, groups, extra, uid):
        check_allowed(authorizer, user, request)
    return User(name, _with_common_group(name, groups or _own_groups(name)), uid, extra)


def _requests(name: str, groups: list[str], extra: dict[str, tuple[str, ...]], uid: str) -> Iterator[AccessRequest]:
    account = split_account_name(name)
    if account is not None:
        yield AccessRequest(IMPERSONATE, "", "serviceaccounts", namespace=account[0], name=account[1])
    else:
        yield AccessRequest(IMPERSONATE, "", "users", name=name)
    for group in groups:
        yield AccessRequest(IMPERSONATE, "", "groups", name=group)
    for key, values in extra.items():
        for value in values:
            yield AccessRequest(IMPERSONATE, _GROUP, "userextras", key, name=value)
    if uid:
        yield AccessRequest(IMPERSONATE, _GROUP, "uids", name=uid)


def _own_groups(name: str) -> list[str]:
    account = split_account_name(name)
    return list(account_groups(account[0])) if account is not None else []


def _with_common_group(name: str, groups: list[str]) -> tuple[str, ...]:
    if name == ANONYMOUS_NAME:
        return (*groups, *(() if UNAUTHENTICATED in groups else (UNAUTHENTICATED,)))
    return (*groups, *(() if {AUTHENTICATED, UNAUTHENTICATED} & set(groups) else (AUTHENTICATED,)))


def _listed(groups: list[str], extra: dict[str, tuple[str, ...]], uid: str) -> str:
    """As Go prints references to what is asked for."""
    texts = [f"{{Group  {group}    }}" for group in groups]
    texts += [f"{{UserExtra  {value}  {_GROUP}/v1  {key}}}" for key, values in extra.items() for value in values]
    if uid:
        texts.append(f"{{UID  {uid}  {_GROUP}/v1  }}")
    return " ".join(texts)
