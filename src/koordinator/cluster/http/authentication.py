"""One bearer token opens everything; without it only liveness and the version are told."""

from __future__ import annotations

import hmac
from typing import Final

from koordinator.cluster.errors import ApiError, unauthorized

USER: Final = "admin"
GROUPS: Final = ("system:masters", "system:authenticated")
_PUBLIC: Final = ("/healthz", "/livez", "/readyz", "/version")


class TokenAuthenticator:
    """Compares in constant time, so that answers do not tell how much of a guess was right."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def is_token(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token)

    def check(self, path: str, authorization: str) -> None:
        """Raises ApiError 401."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer" and self.is_token(token.strip()):
            return
        if path.startswith(_PUBLIC) and not authorization:
            return
        raise unauthorized()

    def check_impersonation(self, user: str | None) -> None:
        """Raises ApiError 403 for a request in the name of somebody else: nobody here has fewer rights to try out."""
        if user is not None and user != USER:
            why = f'this API server knows one user, {USER}, and cannot act as "{user}"'
            raise ApiError(403, "Forbidden", why, {})
