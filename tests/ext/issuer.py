"""An authorization server for tests: real keys, real HTTP on loopback, tokens to order."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

RESOURCE = "https://mcp.example.org/mcp"


@cache
def private_key(kind: str) -> Any:
    """Made once: an RSA key takes a while."""
    if kind == "RSA-1024":
        return rsa.generate_private_key(65537, 1024)
    if kind.startswith("RSA"):
        return rsa.generate_private_key(65537, 2048)
    if kind == "P-256":
        return ec.generate_private_key(ec.SECP256R1())
    if kind == "P-384":
        return ec.generate_private_key(ec.SECP384R1())
    assert kind.startswith("Ed25519")
    return ed25519.Ed25519PrivateKey.generate()


ALGORITHM = {"RSA": "RS256", "RSA-1024": "RS256", "P-256": "ES256", "P-384": "ES384"}


def algorithm(kind: str) -> str:
    return ALGORITHM.get(kind, "RS256" if kind.startswith("RSA") else "EdDSA")


def public_jwk(kind: str, **members: Any) -> dict[str, Any]:
    made = jwt.get_algorithm_by_name(algorithm(kind)).to_jwk(private_key(kind).public_key())
    return {**json.loads(made), "kid": kind, "use": "sig", **members}


def claims(issuer: str, **changed: Any) -> dict[str, Any]:
    now = int(time.time())
    given: dict[str, Any] = {
        "iss": issuer,
        "sub": "ann",
        "aud": RESOURCE,
        "iat": now,
        "exp": now + 600,
        "scope": "mcp files:read",
        "client_id": "editor",
        **changed,
    }
    return {name: value for name, value in given.items() if value is not ...}


def signed(body: dict[str, Any], kind: str = "P-256", alg: str | None = None, **header: Any) -> str:
    headers = {"kid": kind, "typ": "at+jwt", **header}
    made = {name: value for name, value in headers.items() if value is not ...}
    return jwt.encode(body, private_key(kind), alg or algorithm(kind), headers=made)


class Issuer:
    """What it answers is in ``documents``: bytes, or a status, or (status, headers)."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.asked: list[str] = []
        self.documents: dict[str, Any] = {}
        self.publish("P-256")

    def publish(self, *kinds: str) -> None:
        keys = [public_jwk(kind) for kind in kinds]
        self.documents["/keys"] = json.dumps({"keys": keys}).encode()

    def describe(self, path: str, **changed: Any) -> None:
        document = {"issuer": self.url, "jwks_uri": f"{self.url}/keys", **changed}
        self.documents[path] = json.dumps(document).encode()

    def token(self, kind: str = "P-256", **changed: Any) -> str:
        return signed(claims(self.url, **changed), kind)


@contextmanager
def serving() -> Iterator[Issuer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked.append(self.path)
            found = issuer.documents.get(self.path, 404)
            status, headers = found if isinstance(found, tuple) else (found, {})
            body = found if isinstance(found, bytes) else b""
            self.send_response(200 if isinstance(found, bytes) else status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Nothing: the test asks ``asked``."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer = Issuer(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()
