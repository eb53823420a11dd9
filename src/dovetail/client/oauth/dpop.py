"""Tokens bound to a key (DPoP, RFC 9449), for servers that ask for them. Needs ``auth``.

Whoever steals such a token cannot use it: each request carries a proof, signed with a key
that never leaves us, for this method, this URL and this token.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from typing import Any

from dovetail.client.oauth.discovery import AuthorizationServer
from dovetail.errors import AuthorizationError

ALGORITHM = "ES256"
NONCE_WANTED = "use_dpop_nonce"


class ProofKey:
    """A key pair on P-256; ``pem`` is how it is stored."""

    def __init__(self, pem: str | None = None) -> None:
        try:
            from cryptography.hazmat.primitives import serialization
            from cryptography.hazmat.primitives.asymmetric import ec
            from jwt.algorithms import ECAlgorithm
        except ImportError:
            raise AuthorizationError("this server needs: pip install 'dovetail[auth]'") from None
        if pem is None:
            self._key: Any = ec.generate_private_key(ec.SECP256R1())
        else:
            self._key = serialization.load_pem_private_key(pem.encode(), None)
        pkcs8 = serialization.PrivateFormat.PKCS8
        plain = serialization.NoEncryption()
        self.pem = self._key.private_bytes(serialization.Encoding.PEM, pkcs8, plain).decode()
        self._public = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)

    def proof(
        self, method: str, url: str, now: float, nonce: str | None, token: str | None = None
    ) -> str:
        """The value of the header ``DPoP`` (RFC 9449 §4.2), good for one request."""
        import jwt

        claims: dict[str, Any] = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": url.partition("#")[0].partition("?")[0],
            "iat": int(now),
        }
        if nonce is not None:
            claims["nonce"] = nonce
        if token is not None:
            claims["ath"] = _hash(token)
        headers = {"typ": "dpop+jwt", "jwk": self._public}
        return jwt.encode(claims, self._key, algorithm=ALGORITHM, headers=headers)


def check_support(server: AuthorizationServer) -> None:
    """A server that lists algorithms and not ours would refuse every proof."""
    listed = server.dpop_signing_alg_values_supported
    if listed is not None and ALGORITHM not in listed:
        raise AuthorizationError(f"{server.issuer!r} takes no proofs signed with {ALGORITHM}")


def _hash(token: str) -> str:
    digest = hashlib.sha256(token.encode("ascii")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")
