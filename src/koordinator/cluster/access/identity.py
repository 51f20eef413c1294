"""Who sends a request: a name, a UID, groups and further attributes, as authentication has found them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from koordinator.api.document import Document

API_AUDIENCE: Final = "https://kubernetes.default.svc"
"""What tokens for the API server itself are for, and who has issued them."""
ALGORITHM: Final = "ES256"
"""With which they are signed."""
MASTERS: Final = "system:masters"
"""The group whose members may do everything, whatever the roles say."""
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
ANONYMOUS_NAME: Final = "system:anonymous"
_ACCOUNT: Final = "system:serviceaccount:"
_ACCOUNTS: Final = "system:serviceaccounts"


@dataclass(frozen=True, slots=True)
class User:
    """One identity. ``extra`` is what a credential says beside the name, such as the ID of a token."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def is_master(self) -> bool:
        return MASTERS in self.groups

    def document(self) -> Document:
        """The UserInfo of reviews and of admission."""
        info: Document = {"username": self.name} if self.name else {}
        if self.uid:
            info["uid"] = self.uid
        if self.groups:
            info["groups"] = list(self.groups)
        if self.extra:
            info["extra"] = {key: list(values) for key, values in self.extra.items()}
        return info


class Authenticated(NamedTuple):
    """A credential that was verified."""

    user: User
    audiences: Sequence[str]
    """Those of the wanted ones that it is for."""


ADMIN: Final = User("admin", (MASTERS, AUTHENTICATED))
"""The holder of the server's own token."""
ANONYMOUS: Final = User(ANONYMOUS_NAME, (UNAUTHENTICATED,))


def authenticated(name: str, groups: tuple[str, ...], uid: str = "", **extra: tuple[str, ...]) -> User:
    """Somebody whose credential was verified; all of them share a group."""
    return User(name, groups if AUTHENTICATED in groups else (*groups, AUTHENTICATED), uid, extra)


def account_name(namespace: str, name: str) -> str:
    """The user name of a ServiceAccount."""
    return f"{_ACCOUNT}{namespace}:{name}"


def account_groups(namespace: str) -> tuple[str, ...]:
    return (_ACCOUNTS, f"{_ACCOUNTS}:{namespace}")


def split_account_name(user: str) -> tuple[str, str] | None:
    """(namespace, name) of the ServiceAccount with that user name; None for all other users."""
    namespace, colon, name = user.removeprefix(_ACCOUNT).partition(":")
    is_account = user.startswith(_ACCOUNT) and bool(namespace and colon and name) and ":" not in name
    return (namespace, name) if is_account else None
