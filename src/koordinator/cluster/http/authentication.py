"""One bearer token opens everything; without it only liveness and the version are told."""

from __future__ import annotations

import hmac
from typing import Final

from koordinator.cluster.errors import unauthorized

USER: Final = "admin"
GROUPS: Final = ("system:masters", "system:authenticated")
_PUBLIC: Final = ("/healthz", "/livez", "/readyz", "/version")
_EXTRA_SPACE: Final = "the provided Authorization header contains extra space before the bearer token, and is ignored"


class TokenAuthenticator:
    """Compares in constant time, so that answers do not tell how much of a guess was right."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def is_token(self, token: str) -> bool:
        # Bytes of a header that are no UTF-8 come as lone surrogates, which only this encodes.
        return hmac.compare_digest(token.encode(errors="surrogatepass"), self._token)

    def check(self, path: str, authorization: str) -> None:
        """Raises ApiError 401."""
        scheme, *rest = authorization.strip().split(" ", 2)
        if rest and scheme.lower() == "bearer" and self.is_token(rest[0]):
            return
        if path.startswith(_PUBLIC) and not authorization:
            return
        error = unauthorized()
        if scheme.lower() == "bearer" and rest[:1] == [""]:
            error.warnings = (_EXTRA_SPACE,)
        raise error
