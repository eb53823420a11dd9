"""Reading ``WWW-Authenticate`` (RFC 9110 §11.6.1, RFC 6750 §3, RFC 9728 §5.1)."""

from __future__ import annotations

import re

from msgspec import Struct

# A challenge is a few hundred characters; servers limit a header to 8 KiB.
MAX_HEADER = 8192

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_SKIP = re.compile(r"[\s,]*")
_PARAMETER = re.compile(rf'({_TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|({_TOKEN}))(?=\s*(?:,|$))')
_SCHEME = re.compile(rf"({_TOKEN})(?=\s|,|$)")
_TOKEN68 = re.compile(r"\s+[0-9A-Za-z._~+/-]+=*(?=\s*(?:,|$))")
_QUOTED_PAIR = re.compile(r"\\(.)")


class Challenge(Struct, frozen=True):
    """What a server wants, in a 401 or 403 with a scheme that we can serve."""

    error: str = ""
    scopes: tuple[str, ...] = ()
    resource_metadata: str | None = None
    scheme: str = "bearer"


def parse(header: str) -> list[tuple[str, dict[str, str]]]:
    """Every challenge of a header: its scheme in lower case and its parameters.

    Reading stops at what is no challenge; what came before it counts.
    """
    header = header[:MAX_HEADER]
    found: list[tuple[str, dict[str, str]]] = []
    at = 0
    while (at := _end(_SKIP.match(header, at))) < len(header):
        if found and (parameter := _PARAMETER.match(header, at)):
            name, quoted, plain = parameter.groups()
            value = plain if quoted is None else _QUOTED_PAIR.sub(r"\1", quoted)
            found[-1][1].setdefault(name.lower(), value)
            at = parameter.end()
        elif scheme := _SCHEME.match(header, at):
            found.append((scheme[1].lower(), {}))
            at = scheme.end()
            if token := _TOKEN68.match(header, at):
                at = token.end()
        else:
            break
    return found


def read(header: str | None) -> Challenge | None:
    """The challenge to answer; None if the server wants something that is not ours to give.

    Of Bearer and DPoP the first is taken, which asks less of both sides.
    """
    if not header:
        return Challenge()
    found = dict(reversed(parse(header)))
    for scheme in ("bearer", "dpop"):
        if scheme in found:
            return _challenge(scheme, found[scheme])
    return None


def _challenge(scheme: str, parameters: dict[str, str]) -> Challenge:
    scopes = tuple(dict.fromkeys(parameters.get("scope", "").split()))
    metadata = parameters.get("resource_metadata")
    return Challenge(parameters.get("error", ""), scopes, metadata, scheme)


def _end(match: re.Match[str] | None) -> int:
    assert match is not None
    return match.end()
