"""Signed assertions: ``private_key_jwt`` (RFC 7523 §2.2). Needs the extra ``auth``."""

from __future__ import annotations

import secrets

from msgspec import Struct

from dovetail.errors import AuthorizationError

# Long enough for a slow clock, short enough that a stolen assertion is soon worthless.
LIFETIME = 300


class PrivateKey(Struct, frozen=True, kw_only=True):
    """A private key the authorization server knows the public half of."""

    pem: str
    algorithm: str = "ES256"
    key_id: str | None = None

    def __repr__(self) -> str:
        return f"PrivateKey(algorithm={self.algorithm!r}, key_id={self.key_id!r})"

    def assertion(self, client_id: str, issuer: str, now: float) -> str:
        """The audience is the issuer, so that nobody else can use it."""
        issued = int(now)
        claims: dict[str, str | int] = {
            "iss": client_id,
            "sub": client_id,
            "aud": issuer,
            "iat": issued,
            "exp": issued + LIFETIME,
            "jti": secrets.token_urlsafe(16),
        }
        return self._signed(claims)

    def _signed(self, claims: dict[str, str | int]) -> str:
        try:
            import jwt
        except ImportError:
            raise AuthorizationError("private keys need: pip install 'dovetail[auth]'") from None
        headers = None if self.key_id is None else {"kid": self.key_id}
        try:
            return jwt.encode(claims, self.pem, algorithm=self.algorithm, headers=headers)
        except (jwt.PyJWTError, ValueError, TypeError, NotImplementedError) as error:
            raise AuthorizationError(f"the private key cannot be used: {error}") from None
