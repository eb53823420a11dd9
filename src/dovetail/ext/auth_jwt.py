"""Access tokens that are signed JWTs (RFC 9068), checked with PyJWT: the extra ``auth``."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import jwt
import msgspec

from dovetail.ext.auth import AccessToken, InvalidToken, checked_url
from dovetail.ext.auth_jwks import Fetch, Key, KeySet, RemoteKeys, fetch

__all__ = ["ALGORITHMS", "JwtVerifier"]

# Signatures with a key pair only. With a shared secret whoever can check a token could
# make one, and a public key taken for a secret is the oldest attack on JWTs.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA")
# Seconds that two clocks may differ.
LEEWAY: Final = 30.0
# Tokens whose signature need not be checked again: a megabyte or two.
MAX_REMEMBERED: Final = 1024

# An access token; some issuers write no type, or the general one.
_TYPES: Final = frozenset({"at+jwt", "application/at+jwt", "jwt", ""})
_REQUIRED: Final = ["exp", "iss", "aud", "sub"]


class JwtVerifier:
    """Checks tokens of one issuer.

    ``jwks`` is the URL of its keys or the keys themselves; without it the issuer's own
    metadata is asked.
    """

    def __init__(
        self,
        issuer: str,
        jwks: str | Mapping[str, Any] | None = None,
        *,
        algorithms: Sequence[str] = ALGORITHMS,
        fetch: Fetch = fetch,
    ) -> None:
        strange = [name for name in algorithms if name not in ALGORITHMS]
        if strange or not algorithms:
            raise ValueError(f"no algorithm of a key pair: {', '.join(strange) or 'none given'}")
        self._issuer = checked_url(issuer)
        self._algorithms = frozenset(algorithms)
        self._fixed: KeySet | None = None
        if isinstance(jwks, Mapping):
            self._fixed = msgspec.convert(jwks, KeySet)
        else:
            self._remote = RemoteKeys(issuer, jwks, fetch=fetch)
        self._remembered: dict[str, tuple[str | None, list[Key], AccessToken]] = {}

    async def verify(self, token: str) -> AccessToken:
        known = self._remembered.get(token)
        if known is not None:
            kid, keys, found = known
            if await self._keys(kid) == keys:  # the issuer has not taken the key back
                return found
        kid, algorithm = self._read_header(token)
        keys = await self._keys(kid)
        found = _token(self._claims(token, keys, algorithm))
        if len(self._remembered) >= MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[token] = kid, keys, found
        return found

    async def _keys(self, kid: str | None) -> list[Key]:
        return self._fixed.find(kid) if self._fixed is not None else await self._remote.find(kid)

    def _read_header(self, token: str) -> tuple[str | None, str]:
        try:
            header = jwt.get_unverified_header(token)
        except Exception:  # the library's own, but also numbers and nesting beyond Python
            raise InvalidToken("The token is no JWT") from None
        if str(header.get("typ", "")).lower() not in _TYPES:
            raise InvalidToken("The token is no access token")
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise InvalidToken("The token is signed in a way that is not accepted")
        return header.get("kid"), algorithm

    def _claims(self, token: str, keys: list[Key], algorithm: str) -> dict[str, Any]:
        if len(keys) != 1:
            raise InvalidToken("The token is signed with an unknown key")
        if keys[0].get("alg", algorithm) != algorithm:
            raise InvalidToken("The token is signed in a way that its key is not for")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                jwt.PyJWK(keys[0], algorithm),
                algorithms=[algorithm],
                issuer=self._issuer,
                leeway=LEEWAY,
                # For whom it is, is checked by whoever knows who we are.
                options={
                    "require": _REQUIRED,
                    "verify_aud": False,
                    "enforce_minimum_key_length": True,
                },
            )
        except jwt.ExpiredSignatureError:
            raise InvalidToken("The token has expired") from None
        except Exception:
            raise InvalidToken("The token is not valid") from None
        return claims


def _token(claims: dict[str, Any]) -> AccessToken:
    client = claims.get("client_id", claims.get("azp"))
    return AccessToken(
        subject=claims["sub"],
        issuer=claims["iss"],
        audience=_texts(claims["aud"]),
        # RFC 9068 has `scope`; `scp` is what some well-known issuers write.
        scopes=_texts(claims.get("scope", claims.get("scp", "")), split=True),
        expires_at=claims["exp"] + LEEWAY,
        client_id=client if isinstance(client, str) else None,
        claims=claims,
    )


def _texts(value: Any, split: bool = False) -> frozenset[str]:
    """A claim that is a text or a list of texts."""
    if isinstance(value, str):
        return frozenset(value.split(" ") if split else [value]) - {""}
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return frozenset(value)
    raise InvalidToken("The token is not valid")
