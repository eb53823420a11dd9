"""A world to sign in to: an authorization server and an MCP endpoint it guards, on loopback.

The server is strict. It knows its clients, compares redirect URIs, checks PKCE, the resource
and the client's authentication, spends a code once and rotates refresh tokens. What it
was asked is in ``seen``, so that a test can say what must not have been asked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote_plus, urlencode

import jwt
from aiohttp import web
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec

from dovetail.client.oauth import LoopbackBrowser, OAuth
from dovetail.transport.http_client import HttpClient, HttpRequest

AUTH = "Authorization"
METHODS = ["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]


class Refused(Exception):
    def __init__(self, error: str, text: str = "", status: int = 400) -> None:
        super().__init__(error)
        self.error, self.text, self.status = error, text, status


def proved(request: web.Request, nonce: str | None, token: str | None = None) -> str:
    """The thumbprint of the key behind a DPoP proof, which must be right in all it says."""
    (proof,) = request.headers.getall("DPoP")
    header = jwt.get_unverified_header(proof)
    assert (header["typ"], header["alg"]) == ("dpop+jwt", "ES256")
    assert "d" not in header["jwk"], "the private half stays at home"
    claims = jwt.decode(proof, jwt.PyJWK(header["jwk"]).key, algorithms=["ES256"])
    assert claims["htm"] == request.method
    assert claims["htu"] == f"http://{request.host}{request.path}"
    assert claims["jti"]
    if token is not None:
        assert claims["ath"] == b64_sha256(token)
    if nonce is not None and claims.get("nonce") != nonce:
        raise Refused("use_dpop_nonce")
    # RFC 7638 §3.
    return b64_sha256(json.dumps(header["jwk"], sort_keys=True, separators=(",", ":")))


def b64_sha256(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class AuthServer:
    """OAuth 2.1 with the extensions MCP uses. Attributes are what a test may change."""

    def __init__(self) -> None:
        self.url = ""
        self.path = ""  # of the issuer
        self.metadata: dict[str, Any] = {}  # overrides; None removes
        self.where = "/.well-known/oauth-authorization-server"
        self.clients: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, str] = {}  # public keys of clients
        self.codes: dict[str, dict[str, str]] = {}
        self.tokens: dict[str, dict[str, Any]] = {}
        self.refresh: dict[str, dict[str, Any]] = {}
        self.lifetime: Any = 3600
        self.iss: str | None = ""  # "" is the right one
        self.grants_fewer: set[str] = set()  # scopes the user does not grant
        self.refresh_tokens = True
        self.denies = False
        self.trusted_idp: AuthServer | None = None
        self.id_tokens: dict[str, str] = {}  # when it is an identity provider: subject by token
        self.token_answer: Callable[[dict[str, Any]], web.Response] | None = None
        self.registration: dict[str, Any] = {}
        self.nonce: str | None = None  # what proofs must contain
        self.seen: list[tuple[str, dict[str, str]]] = []

    @property
    def issuer(self) -> str:
        return self.url + self.path

    def asked(self, path: str) -> list[dict[str, str]]:
        return [form for where, form in self.seen if where == path]

    def grants(self) -> list[str]:
        return [form["grant_type"] for form in self.asked("/token")]

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": self.url + "/authorize",
            "token_endpoint": self.url + "/token",
            "registration_endpoint": self.url + "/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": METHODS,
            "authorization_response_iss_parameter_supported": True,
        }
        found.update(self.metadata)
        return {name: value for name, value in found.items() if value is not None}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path == self.where:
            self.seen.append((request.path, {}))
            return web.json_response(self.document())
        handler = {
            "/authorize": self._authorize,
            "/token": self._token,
            "/register": self._register,
        }.get(request.path)
        if handler is None:
            self.seen.append((request.path, {}))
            return web.json_response({"error": "not_found"}, status=404)
        try:
            return await handler(request)
        except Refused as no:
            said = {"error": no.error, "error_description": no.text}
            nonce = {} if self.nonce is None else {"DPoP-Nonce": self.nonce}
            return web.json_response(said, status=no.status, headers=nonce)

    async def _register(self, request: web.Request) -> web.Response:
        wanted = await request.json()
        self.seen.append(("/register", wanted))
        if self.registration.get("error"):
            return web.json_response(self.registration, status=400)
        client_id = f"client-{len(self.clients)}-of-{self.url}"
        made = {**wanted, "client_id": client_id}
        if wanted["token_endpoint_auth_method"] != "none":
            made["client_secret"] = secrets.token_urlsafe()
        made.update(self.registration)
        self.clients[client_id] = made
        return web.json_response(made, status=201)

    async def _authorize(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        self.seen.append(("/authorize", query))
        client = self._known(query["client_id"])
        if query["redirect_uri"] not in client["redirect_uris"]:
            raise Refused("invalid_request", "redirect_uri")
        assert query["code_challenge_method"] == "S256"
        allowed = client.get("scope", query.get("scope", "")).split()
        if not set(query.get("scope", "").split()) <= set(allowed):
            raise Refused("invalid_scope", "the client is not registered for it")
        answer = {"state": query["state"]}
        if self.iss is not None:
            answer["iss"] = self.iss or self.issuer
        if self.denies:
            answer |= {"error": "access_denied", "error_description": "the user said no"}
        else:
            answer["code"] = code = secrets.token_urlsafe()
            self.codes[code] = query
        raise web.HTTPFound(f"{query['redirect_uri']}?{urlencode(answer)}")

    def _known(self, client_id: str) -> dict[str, Any]:
        if client_id.startswith("https://"):  # a document; its content is known to the tests
            return {"client_id": client_id, "redirect_uris": self.metadata["document_redirects"]}
        if client_id not in self.clients:
            raise Refused("invalid_client", "unknown", 401)
        return self.clients[client_id]

    async def _token(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.seen.append(("/token", form))
        client = self._authenticated(request, form)
        granted = getattr(self, "_" + form["grant_type"].rpartition(":")[2].replace("-", "_"))
        bound = proved(request, self.nonce) if "DPoP" in request.headers else None
        answer = granted(form, client)
        if bound is not None:
            self.tokens[answer["access_token"]]["key"] = bound
            answer["token_type"] = "DPoP"
        return web.json_response(answer) if self.token_answer is None else self.token_answer(answer)

    def _authenticated(self, request: web.Request, form: dict[str, str]) -> dict[str, Any]:
        header = request.headers.get(AUTH, "")
        if "client_assertion" in form:
            unsafe = jwt.decode(form["client_assertion"], options={"verify_signature": False})
            key = self.keys[unsafe["sub"]]
            claims = jwt.decode(
                form["client_assertion"], key, algorithms=["ES256"], audience=self.issuer
            )
            assert claims["iss"] == claims["sub"]
            assert 0 < claims["exp"] - claims["iat"] <= 600
            return {"client_id": claims["sub"]}
        if header.startswith("Basic "):
            name, _, secret = base64.b64decode(header[6:]).decode().partition(":")
            form["client_id"], form["client_secret"] = unquote_plus(name), unquote_plus(secret)
        client = self._known(form["client_id"])
        if client.get("client_secret") != form.get("client_secret"):
            raise Refused("invalid_client", "wrong secret", 401)
        method = client.get("token_endpoint_auth_method")
        basic = method == "client_secret_basic"
        assert method is None or basic == bool(header), f"registered for {method}"
        return client

    def _authorization_code(self, form: dict[str, str], client: dict[str, Any]) -> dict[str, Any]:
        asked = self.codes.pop(form["code"], None)
        if asked is None or asked["client_id"] != client["client_id"]:
            raise Refused("invalid_grant", "code")
        assert asked["code_challenge"] == b64_sha256(form["code_verifier"])
        assert asked["redirect_uri"] == form["redirect_uri"]
        assert asked.get("resource") == form.get("resource")
        return self.issue(client, asked.get("scope", ""), form.get("resource"))

    def _refresh_token(self, form: dict[str, str], client: dict[str, Any]) -> dict[str, Any]:
        old = self.refresh.pop(form["refresh_token"], None)
        if old is None or old["client_id"] != client["client_id"]:
            raise Refused("invalid_grant", "refresh token")
        return self.issue(client, old["scope"], form.get("resource"))

    def _client_credentials(self, form: dict[str, str], client: dict[str, Any]) -> dict[str, Any]:
        return self.issue(client, form.get("scope", ""), form.get("resource"))

    def _token_exchange(self, form: dict[str, str], client: dict[str, Any]) -> dict[str, Any]:
        if form["subject_token"] not in self.id_tokens:
            raise Refused("invalid_grant", "no such user")
        assert form["requested_token_type"] == "urn:ietf:params:oauth:token-type:id-jag"
        assert form["subject_token_type"] == "urn:ietf:params:oauth:token-type:id_token"
        self.codes[jag := secrets.token_urlsafe()] = form
        kind = self.metadata.get("issued", form["requested_token_type"])
        return {"access_token": jag, "issued_token_type": kind, "token_type": "N_A"}

    def _jwt_bearer(self, form: dict[str, str], client: dict[str, Any]) -> dict[str, Any]:
        assert self.trusted_idp is not None
        jag = self.trusted_idp.codes.pop(form["assertion"], None)
        if jag is None or jag["audience"] != self.issuer:
            raise Refused("invalid_grant", "assertion")
        return self.issue(client, form.get("scope", ""), jag["resource"])

    def issue(self, client: dict[str, Any], scope: str, resource: str | None) -> dict[str, Any]:
        scope = " ".join(one for one in scope.split() if one not in self.grants_fewer)
        record = {"client_id": client["client_id"], "scope": scope, "resource": resource}
        self.tokens[token := secrets.token_urlsafe()] = record
        answer = {"access_token": token, "token_type": "Bearer", "scope": scope}
        if self.lifetime is not None:
            answer["expires_in"] = self.lifetime
        if self.refresh_tokens:
            self.refresh[again := secrets.token_urlsafe()] = record
            answer["refresh_token"] = again
        return answer


class Endpoint:
    """An MCP endpoint that wants a token. It answers 200 with the scopes of the token."""

    def __init__(self, server: AuthServer) -> None:
        self.server = server
        self.url = ""
        self.resource: str | None = None  # what its metadata says; its URL by default
        self.servers: list[str] | None = None
        self.scopes_supported: list[str] | None = None
        self.wants: list[str] = []  # scopes of the 401
        self.needs: list[str] = []  # scopes of the 403
        self.hint = True
        self.where: str | None = "/.well-known/oauth-protected-resource/mcp"
        self.challenge: str | None = None  # the whole header, if not the usual one
        self.revoked: set[str] = set()
        self.tokens: list[str] = []  # the Authorization of each request
        self.seen: list[str] = []
        self.always: int | None = None
        self.dpop = False
        self.nonce: str | None = None
        self.proofs: list[str] = []

    def document(self) -> dict[str, Any]:
        servers = [self.server.issuer] if self.servers is None else self.servers
        found = {"resource": self.resource or self.url, "authorization_servers": servers}
        if self.scopes_supported is not None:
            found["scopes_supported"] = self.scopes_supported
        return found

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path != "/mcp":
            self.seen.append(request.path)
            if request.path == self.where:
                return web.json_response(self.document())
            return web.Response(status=404, text="<html>nothing</html>")
        assert request.query_string == "", "a token never travels in the URL"
        header = request.headers.get(AUTH, "")
        self.tokens.append(header)
        token = self.server.tokens.get(header.removeprefix("DPoP " if self.dpop else "Bearer "))
        if self.dpop and token is not None:
            try:
                self._check_proof(request, token["key"])
            except Refused as no:
                challenge = {"WWW-Authenticate": f'DPoP error="{no.error}"'}
                nonce = {"DPoP-Nonce": self.nonce or ""}
                return web.Response(status=401, headers={**challenge, **nonce})
        if self.always == 401 or token is None or header in self.revoked:
            return self._refuse(401, self.wants)
        assert token["resource"] in (self.resource or self.url, None)
        if self.always == 403 or not set(self.needs) <= set(token["scope"].split()):
            return self._refuse(403, self.needs)
        said = await request.json()
        if "method" in said:
            return web.json_response(mcp(said))
        return web.json_response({"scope": token["scope"]})

    def _check_proof(self, request: web.Request, key: str) -> None:
        token = request.headers[AUTH].removeprefix("DPoP ")
        assert proved(request, self.nonce, token) == key
        assert request.headers["DPoP"] not in self.proofs, "a proof is used once"
        self.proofs.append(request.headers["DPoP"])

    def _refuse(self, status: int, scopes: list[str]) -> web.Response:
        said = ['error="insufficient_scope"'] if status == 403 else []
        if scopes:
            said.append(f'scope="{" ".join(scopes)}"')
        if self.hint:
            root = self.url.removesuffix("/mcp")
            said.append(f'resource_metadata="{root}{self.where}"')
        scheme = "DPoP " if self.dpop else "Bearer "
        header = scheme + ", ".join(said) if self.challenge is None else self.challenge
        return web.Response(status=status, headers={"WWW-Authenticate": header} if header else {})

    def revoke(self) -> None:
        self.revoked.add(self.tokens[-1])


def mcp(request: dict[str, Any]) -> dict[str, Any]:
    """As much of 2026-07-28 as a client needs to be content."""
    hints = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    results = {
        "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
        "tools/list": {"tools": [{"name": "hello", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "hello"}]},
    }
    result = {**results[request["method"]], **hints}
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}


@asynccontextmanager
async def serving(handle: Any) -> AsyncIterator[str]:
    """The handler on a port of its own; its origin."""
    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def world() -> AsyncIterator[tuple[AuthServer, Endpoint]]:
    server = AuthServer()
    endpoint = Endpoint(server)
    async with serving(server.handle) as server.url, serving(endpoint.handle) as origin:
        endpoint.url = origin + "/mcp"
        yield server, endpoint


class Person:
    """Somebody with a browser: follows the redirects, as a browser does."""

    def __init__(self) -> None:
        self.visited: list[str] = []
        self.page = ""

    def __call__(self, url: str) -> bool:
        self.visited.append(url)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(url, timeout=10) as page:
                self.page = page.read().decode()
        except urllib.error.HTTPError as error:
            self.page = error.read().decode()
            error.close()
        return True

    def browser(self, uri: str = "http://127.0.0.1:0/callback", seconds: float = 10) -> Any:
        return LoopbackBrowser(uri, opener=self, seconds=seconds)


def signing_in(person: Person, **options: Any) -> OAuth:
    """The authorization of a program that this person uses."""
    return OAuth("a test", browser=person.browser(), **options)


async def post(auth: Any, url: str) -> tuple[int, bytes]:
    """One request of a client with this authorization."""
    http = HttpClient(auth)
    try:
        response = await http.send(HttpRequest("POST", url, {}, b"{}"))
        return response.status, await response.read(1 << 20)
    finally:
        await http.close()


def key_pair() -> tuple[str, str]:
    """A private key and its public half."""
    key = ec.generate_private_key(ec.SECP256R1())
    private = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    public = key.public_key().public_bytes(
        forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo
    )
    return private.decode(), public.decode()


def company(server: AuthServer, idp: AuthServer) -> None:
    """A server that believes the identity provider of a company, where Ann works."""
    idp.id_tokens["id token of Ann"] = "ann"
    idp.clients["app at the provider"] = {"client_id": "app at the provider"}
    idp.metadata["authorization_endpoint"] = None
    server.clients["app"] = {"client_id": "app", "client_secret": "s"}
    server.trusted_idp = idp
    server.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_basic"]
