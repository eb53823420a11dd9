"""A small OAuth 2.1 authorization server on loopback, for tests: registers, authorizes, signs.

The user says yes to everything at once, so that a client can go all the way without a browser.
Codes are for one use, redirects are compared exactly, and PKCE is not optional.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

LIFETIME = 600


class Refused(Exception):
    def __init__(self, status: int, error: str, why: str = "") -> None:
        self.status = status
        self.document = {"error": error, "error_description": why or error}
        super().__init__(error)


@dataclass
class AuthorizationServer:
    url: str
    key: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    clients: dict[str, list[str]] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    granted: list[dict[str, str]] = field(default_factory=list)

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "jwks_uri": f"{self.url}/keys",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
        }

    def keys(self) -> dict[str, Any]:
        jwk = json.loads(jwt.get_algorithm_by_name("ES256").to_jwk(self.key.public_key()))
        return {"keys": [{**jwk, "kid": "1", "use": "sig", "alg": "ES256"}]}

    def register(self, wish: dict[str, Any]) -> dict[str, Any]:
        redirects = wish.get("redirect_uris", [])
        if not redirects or not all(map(_is_safe, redirects)):
            raise Refused(400, "invalid_redirect_uri")
        id = secrets.token_urlsafe(8)
        self.clients[id] = redirects
        return {**wish, "client_id": id, "token_endpoint_auth_method": "none"}

    def authorize(self, asked: dict[str, str]) -> str:
        """Where to send the user; whoever is not known is sent nowhere."""
        if asked.get("redirect_uri") not in self.clients.get(asked.get("client_id", ""), []):
            raise Refused(400, "invalid_request", "this redirect_uri is not registered")
        if asked.get("code_challenge_method") != "S256" or "resource" not in asked:
            raise Refused(400, "invalid_request")
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        answer = {"code": code, "iss": self.url}
        answer |= {"state": asked["state"]} if "state" in asked else {}
        return f"{asked['redirect_uri']}?{urlencode(answer)}"

    def token(self, asked: dict[str, str]) -> dict[str, Any]:
        if asked.get("client_id") not in self.clients:
            raise Refused(401, "invalid_client")
        granted = self.codes.pop(asked.get("code", ""), None)
        if granted is None or granted["client_id"] != asked["client_id"]:
            raise Refused(400, "invalid_grant")
        if granted["redirect_uri"] != asked.get("redirect_uri"):
            raise Refused(400, "invalid_grant", "redirect_uri is not that of the code")
        if _challenge(asked.get("code_verifier", "")) != granted["code_challenge"]:
            raise Refused(400, "invalid_grant")
        self.granted.append(granted)
        return {
            "access_token": self.signed(granted["resource"], granted.get("scope", "")),
            "token_type": "Bearer",
            "expires_in": LIFETIME,
            "scope": granted.get("scope", ""),
        }

    def signed(self, resource: str, scope: str, subject: str = "ann") -> str:
        now = int(time.time())
        claims = {"iss": self.url, "sub": subject, "aud": resource, "scope": scope}
        claims |= {"iat": now, "exp": now + LIFETIME}
        return jwt.encode(claims, self.key, "ES256", headers={"kid": "1", "typ": "at+jwt"})


def _challenge(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _is_safe(redirect: str) -> bool:
    parts = urlsplit(redirect)
    return parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1")


class Handler(BaseHTTPRequestHandler):
    made: AuthorizationServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/.well-known/oauth-authorization-server":
            self.answer(200, self.made.metadata())
        elif parts.path == "/keys":
            self.answer(200, self.made.keys())
        elif parts.path == "/authorize":
            asked = dict(parse_qsl(parts.query))
            self.attempt(lambda: self.redirect(self.made.authorize(asked)))
        else:
            self.answer(404, {"error": "not_found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.path == "/register":
            self.attempt(lambda: self.answer(201, self.made.register(json.loads(body))))
        elif self.path == "/token":
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self.attempt(lambda: self.answer(200, self.made.token(form)))
        else:
            self.answer(404, {"error": "not_found"})

    def attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Refused as refused:
            self.answer(refused.status, refused.document)

    def redirect(self, url: str) -> None:
        self.send_response(302)
        self.send_header("Location", url)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def answer(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Nothing."""


@contextmanager
def authorization_server() -> Iterator[AuthorizationServer]:
    handler = type("OneHandler", (Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        made = AuthorizationServer(f"http://127.0.0.1:{server.server_address[1]}")
        handler.made = made
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
