"""Signed tokens: real keys, real signatures, and an issuer that answers on a real socket."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from issuer import RESOURCE, Issuer, claims, private_key, public_jwk, serving, signed

from dovetail.ext import auth_jwks
from dovetail.ext.auth import AccessToken, InvalidToken, VerifierUnavailable
from dovetail.ext.auth_jwks import MAX_AGE, MAX_DOCUMENT, MAX_STALE, MIN_INTERVAL
from dovetail.ext.auth_jwt import LEEWAY, MAX_REMEMBERED, JwtVerifier
from support import run

ISSUER = "https://auth.example.org"


def fixed(*kinds: str, **options: Any) -> JwtVerifier:
    keys = [public_jwk(kind) for kind in kinds or ("P-256",)]
    return JwtVerifier(ISSUER, {"keys": keys}, **options)


def verify(token: str, verifier: JwtVerifier | None = None) -> AccessToken:
    return run((verifier or fixed()).verify(token), collect=False)


def refused(token: str, verifier: JwtVerifier | None = None) -> str:
    with pytest.raises(InvalidToken) as caught:
        verify(token, verifier)
    return str(caught.value)


# -- what a token says ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["RSA", "P-256", "P-384", "Ed25519"])
def test_a_signed_token_says_who_it_is(kind: str) -> None:
    body = claims(ISSUER)
    assert verify(signed(body, kind), fixed(kind)) == AccessToken(
        subject="ann",
        issuer=ISSUER,
        audience=frozenset([RESOURCE]),
        scopes=frozenset(["mcp", "files:read"]),
        expires_at=body["exp"] + LEEWAY,
        client_id="editor",
        claims=body,
    )


@pytest.mark.parametrize(
    ("changed", "scopes"),
    [
        ({"scope": ...}, set()),
        ({"scope": ""}, set()),
        ({"scope": "a  b"}, {"a", "b"}),
        ({"scope": ["a", "b c"]}, {"a", "b c"}),
        ({"scope": ..., "scp": ["a", "b"]}, {"a", "b"}),
        ({"scope": ..., "scp": "a b"}, {"a", "b"}),
    ],
)
def test_scopes_are_written_in_several_ways(changed: dict[str, Any], scopes: set[str]) -> None:
    assert verify(signed(claims(ISSUER, **changed))).scopes == scopes


@pytest.mark.parametrize(
    ("changed", "client"),
    [
        ({"client_id": ..., "azp": "app"}, "app"),
        ({"client_id": ...}, None),
        ({"client_id": 7}, None),
    ],
)
def test_the_client_is_known_if_it_is_named(changed: dict[str, Any], client: str | None) -> None:
    assert verify(signed(claims(ISSUER, **changed))).client_id == client


def test_several_audiences() -> None:
    found = verify(signed(claims(ISSUER, aud=["a", "b"])))
    assert found.audience == {"a", "b"}


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.verifies("S69")
@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"exp": int(time.time()) - 60}, "The token has expired"),
        ({"exp": ...}, "The token is not valid"),
        ({"exp": "soon"}, "The token is not valid"),
        ({"nbf": int(time.time()) + 600}, "The token is not valid"),
        ({"iat": int(time.time()) + 600}, "The token is not valid"),
        ({"iss": "https://evil.example.org"}, "The token is not valid"),
        ({"iss": ISSUER + "/"}, "The token is not valid"),
        ({"iss": ...}, "The token is not valid"),
        ({"sub": ...}, "The token is not valid"),
        ({"sub": 7}, "The token is not valid"),
        ({"aud": ...}, "The token is not valid"),
        ({"aud": 7}, "The token is not valid"),
        ({"aud": [7]}, "The token is not valid"),
        ({"scope": {"a": 1}}, "The token is not valid"),
        ({"scope": [1]}, "The token is not valid"),
    ],
)
def test_claims_that_are_refused(changed: dict[str, Any], text: str) -> None:
    assert refused(signed(claims(ISSUER, **changed))) == text


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def by_hand(header: Any, body: Any, signature: str = "") -> str:
    return f"{part(header)}.{part(body)}.{signature}"


@pytest.mark.verifies("S69")
def test_an_unsigned_token_is_refused() -> None:
    body = claims(ISSUER)
    for name in ("none", "None", "NONE", "", None, 7):
        assert "not accepted" in refused(by_hand({"alg": name, "typ": "JWT", "kid": "P-256"}, body))


def test_a_public_key_is_no_shared_secret() -> None:
    """The attack: sign with HS256 and the issuer's public key, which everybody knows."""
    public = private_key("RSA").public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = f"{part({'alg': 'HS256', 'typ': 'JWT', 'kid': 'RSA'})}.{part(claims(ISSUER))}"
    mac = hmac.digest(pem, head.encode(), "sha256")
    forged = f"{head}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    assert "not accepted" in refused(forged, fixed("RSA"))


def test_a_signature_of_another_key_is_refused() -> None:
    assert (
        refused(signed(claims(ISSUER), "RSA-2", kid="RSA"), fixed("RSA"))
        == "The token is not valid"
    )
    token = signed(claims(ISSUER))
    head, body, signature = token.split(".")
    changed = part(claims(ISSUER, sub="root"))
    assert refused(f"{head}.{changed}.{signature}") == "The token is not valid"
    assert refused(f"{head}.{body}.{signature[:-4]}").startswith("The token is")


def test_a_key_is_used_for_its_own_algorithm_only() -> None:
    assert "unknown key" in refused(signed(claims(ISSUER), "RSA"))
    body = claims(ISSUER)
    # An elliptic key under the name of an RSA algorithm, and the other way round.
    assert refused(signed(body, "RSA", kid="P-256")) == "The token is not valid"
    bound = JwtVerifier(ISSUER, {"keys": [public_jwk("RSA", alg="RS256")]})
    assert "its key is not for" in refused(signed(body, "RSA", "PS256"), bound)
    assert verify(signed(body, "RSA", "PS256"), fixed("RSA")).subject == "ann"
    assert "not accepted" in refused(signed(body), fixed("P-256", algorithms=["EdDSA"]))


def test_a_key_for_encryption_signs_nothing() -> None:
    verifier = JwtVerifier(ISSUER, {"keys": [public_jwk("P-256", use="enc")]})
    assert "unknown key" in refused(signed(claims(ISSUER)), verifier)


def test_a_key_that_is_too_short_is_not_trusted() -> None:
    assert refused(signed_weakly(), fixed("RSA-1024")) == "The token is not valid"


def signed_weakly() -> str:
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        return signed(claims(ISSUER), "RSA-1024")


@pytest.mark.parametrize("typ", ["JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt"])
def test_the_type_of_an_access_token(typ: str) -> None:
    assert verify(signed(claims(ISSUER), typ=typ)).subject == "ann"


@pytest.mark.parametrize("typ", ["dpop+jwt", "logout+jwt", "secevent+jwt"])
def test_the_type_of_something_else(typ: str) -> None:
    assert refused(signed(claims(ISSUER), typ=typ)) == "The token is no access token"


def test_a_token_without_a_key_id_fits_a_single_key() -> None:
    assert verify(signed(claims(ISSUER), kid=...)).subject == "ann"
    assert "unknown key" in refused(signed(claims(ISSUER), kid=...), fixed("P-256", "RSA"))


@pytest.mark.parametrize("critical", [["exp"], ["b64"], ["invented"]])
def test_a_header_we_do_not_understand_is_not_ignored(critical: list[str]) -> None:
    token = signed(claims(ISSUER), crit=critical, invented=1)
    assert refused(token) in ("The token is no JWT", "The token is not valid")


@pytest.mark.parametrize(
    "token", ["x", "a.b", "a.b.c", "....", "..", by_hand([], {}), by_hand({}, {})]
)
def test_what_is_no_jwt(token: str) -> None:
    assert refused(token).startswith("The token is")


@pytest.mark.parametrize("body", ["9" * 5000, "[" * 9000 + "]" * 9000])
def test_numbers_and_nesting_beyond_all_limits(body: str) -> None:
    written = base64.urlsafe_b64encode(body.encode()).rstrip(b"=").decode()
    for head in (part({"alg": "ES256", "kid": "P-256"}), written):
        assert refused(f"{head}.{written}.AAAA").startswith("The token is")


TEXT = st.text(alphabet=st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(
    header=st.dictionaries(st.sampled_from(["alg", "typ", "kid", "crit", "b64", "jwk"]), JSON),
    body=JSON,
    signature=TEXT,
)
def test_whatever_comes_is_refused_and_breaks_nothing(
    header: Any, body: Any, signature: str
) -> None:
    for alg in (header.get("alg"), "ES256"):
        refused(by_hand({**header, "alg": alg}, body, signature))


@settings(max_examples=100, deadline=None)
@given(
    changed=st.dictionaries(
        st.sampled_from(["iss", "sub", "aud", "exp", "nbf", "iat", "jti", "scope"]),
        JSON,
        min_size=1,
    )
)
def test_whatever_an_issuer_signs_is_understood_or_refused(changed: dict[str, Any]) -> None:
    body = {**claims(ISSUER), **changed}
    head = f"{part({'alg': 'ES256', 'kid': 'P-256'})}.{part(body)}"
    signature = jwt.get_algorithm_by_name("ES256").sign(head.encode(), private_key("P-256"))
    token = f"{head}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    try:
        found = verify(token)
    except InvalidToken:
        return
    assert isinstance(found.subject, str)
    assert found.issuer == ISSUER


# -- what is remembered --------------------------------------------------------------------------


def test_a_signature_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[str] = []
    decode = jwt.decode

    def counted(token: str, *args: Any, **options: Any) -> Any:
        checks.append(token)
        return decode(token, *args, **options)

    monkeypatch.setattr(jwt, "decode", counted)
    verifier, body = fixed(), claims(ISSUER)
    good, bad = signed(body), signed(body, "P-384", kid="P-256")
    for _ in range(3):
        assert verify(good, verifier).subject == "ann"
        refused(bad, verifier)
    assert checks == [good, bad, bad, bad]


def test_no_more_is_remembered_than_the_limit() -> None:
    verifier = fixed("Ed25519")
    tokens = [signed(claims(ISSUER, jti=str(n)), "Ed25519") for n in range(MAX_REMEMBERED + 5)]

    async def main() -> None:
        for token in tokens:
            await verifier.verify(token)

    run(main())
    assert len(verifier._remembered) == MAX_REMEMBERED


# -- keys from the issuer ------------------------------------------------------------------------


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with serving() as made:
        yield made


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def remote(issuer: Issuer, jwks: str | None = "/keys") -> tuple[JwtVerifier, Clock]:
    verifier, clock = JwtVerifier(issuer.url, jwks and issuer.url + jwks), Clock()
    verifier._remote._clock = clock
    return verifier, clock


def test_keys_are_fetched_once(issuer: Issuer) -> None:
    verifier, clock = remote(issuer)
    for _ in range(3):
        assert verify(issuer.token(), verifier).subject == "ann"
        clock.now += 60
    assert issuer.asked == ["/keys"]


def test_all_who_come_at_once_wait_for_one_fetch(issuer: Issuer) -> None:
    verifier, _ = remote(issuer)

    async def main() -> None:
        impatient = asyncio.create_task(verifier.verify(issuer.token()))
        await asyncio.sleep(0)
        impatient.cancel()
        found = await asyncio.gather(*(verifier.verify(issuer.token()) for _ in range(20)))
        assert {one.subject for one in found} == {"ann"}

    run(main())
    assert issuer.asked == ["/keys"]


def test_a_new_key_is_fetched_when_it_is_first_used(issuer: Issuer) -> None:
    verifier, clock = remote(issuer)
    verify(issuer.token(), verifier)
    issuer.publish("P-256", "Ed25519")
    clock.now += MIN_INTERVAL
    assert verify(issuer.token("Ed25519"), verifier).subject == "ann"
    assert issuer.asked == ["/keys"] * 2


def test_invented_key_ids_do_not_flood_the_issuer(issuer: Issuer) -> None:
    verifier, clock = remote(issuer)
    for number in range(30):
        clock.now += 1
        token = signed(claims(issuer.url), kid=f"invented-{number}")
        assert "unknown key" in refused(token, verifier)
    assert len(issuer.asked) == 30 / MIN_INTERVAL


def test_a_key_taken_back_opens_nothing_any_more(issuer: Issuer) -> None:
    verifier, clock = remote(issuer)
    token = issuer.token()
    verify(token, verifier)
    issuer.publish("Ed25519")
    clock.now += MAX_AGE
    assert "unknown key" in refused(token, verifier)


def test_known_keys_serve_while_the_issuer_is_away(issuer: Issuer) -> None:
    verifier, clock = remote(issuer)
    verify(issuer.token(), verifier)
    issuer.documents["/keys"] = 500
    clock.now += MAX_AGE
    assert verify(issuer.token(), verifier).subject == "ann"
    clock.now += MAX_STALE
    with pytest.raises(VerifierUnavailable):
        verify(issuer.token(), verifier)
    issuer.publish("P-256")
    clock.now += MIN_INTERVAL
    assert verify(issuer.token(), verifier).subject == "ann"


@pytest.mark.parametrize(
    "answer",
    [
        404,
        503,
        b"",
        b"{",
        b"[]",
        b'{"keys": {}}',
        b'{"keys": [1]}',
        b'{"keys": "' + b"x" * MAX_DOCUMENT + b'"}',
        (302, {"Location": "/elsewhere"}),
    ],
)
def test_documents_that_are_no_keys(issuer: Issuer, answer: Any) -> None:
    """Redirects are not followed: keys come from where they were looked for."""
    keys = issuer.documents["/keys"]
    issuer.documents |= {"/keys": answer, "/elsewhere": keys}
    verifier, clock = remote(issuer)
    with pytest.raises(VerifierUnavailable):
        verify(issuer.token(), verifier)
    issuer.documents["/keys"] = keys
    with pytest.raises(VerifierUnavailable):  # not so soon again
        verify(issuer.token(), verifier)
    clock.now += MIN_INTERVAL
    assert verify(issuer.token(), verifier).subject == "ann"
    assert issuer.asked == ["/keys"] * 2


def test_a_key_that_makes_no_sense(issuer: Issuer) -> None:
    issuer.documents["/keys"] = (
        b'{"keys": [{"kty": "EC", "kid": "P-256", "crv": "P-256", "x": "?"}]}'
    )
    verifier, _ = remote(issuer)
    assert refused(issuer.token(), verifier) == "The token is not valid"


def test_an_issuer_that_nobody_listens_at() -> None:
    with serving() as gone:
        token = gone.token()
    with pytest.raises(VerifierUnavailable):
        verify(token, JwtVerifier(gone.url, gone.url + "/keys"))


def test_an_issuer_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth_jwks, "FETCH_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(VerifierUnavailable):
            verify(signed(claims(url)), JwtVerifier(url, url + "/keys"))


# -- where the keys are --------------------------------------------------------------------------

ROOT = "/.well-known/"


@pytest.mark.parametrize("name", ["oauth-authorization-server", "openid-configuration"])
def test_the_issuer_says_where_its_keys_are(issuer: Issuer, name: str) -> None:
    issuer.describe(ROOT + name)
    verifier, _ = remote(issuer, None)
    assert verify(issuer.token(), verifier).subject == "ann"
    assert issuer.asked[-2:] == [ROOT + name, "/keys"]


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/oauth-authorization-server/tenant",
        "/.well-known/openid-configuration/tenant",
        "/tenant/.well-known/openid-configuration",
    ],
)
def test_an_issuer_with_a_path(issuer: Issuer, path: str) -> None:
    keys = issuer.url + "/keys"
    issuer.url += "/tenant"
    issuer.describe(path, jwks_uri=keys)
    issuer.describe("/.well-known/oauth-authorization-server", issuer="another")
    verifier, _ = remote(issuer, None)
    assert verify(issuer.token(), verifier).subject == "ann"
    assert issuer.asked[-2:] == [path, "/keys"]


@pytest.mark.parametrize(
    "wrong", [{"issuer": "https://evil.example.org"}, {"jwks_uri": "http://evil.example.org/keys"}]
)
def test_metadata_of_somebody_else(issuer: Issuer, wrong: dict[str, str]) -> None:
    issuer.describe(ROOT + "oauth-authorization-server", **wrong)
    verifier, _ = remote(issuer, None)
    with pytest.raises(VerifierUnavailable):
        verify(issuer.token(), verifier)
    assert "/keys" not in issuer.asked


# -- mistakes of the author ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("issuer", "options", "text"),
    [
        ("http://auth.example.org", {}, "must be https"),
        (ISSUER, {"jwks": "http://auth.example.org/keys"}, "must be https"),
        (ISSUER, {"algorithms": ["HS256"]}, "HS256"),
        (ISSUER, {"algorithms": ["RS256", "none"]}, "none"),
        (ISSUER, {"algorithms": []}, "none given"),
    ],
)
def test_a_wrong_setting_of_the_verifier(issuer: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        JwtVerifier(issuer, **options)
