"""Authorization of the client: OAuth 2.1 as MCP wants it, for ``Client.http(url, auth=...)``.

OAuth                a user signs in with a browser
ClientCredentials    a program with a secret or a private key
EnterpriseManaged    a company's identity provider decides
WorkloadIdentity     a program that its platform vouches for
"""

from dovetail.client.oauth.assertions import PrivateKey
from dovetail.client.oauth.authorizer import Authorizer
from dovetail.client.oauth.browser import Browser, LoopbackBrowser, OwnBrowser, Visit
from dovetail.client.oauth.clients import document as client_metadata_document
from dovetail.client.oauth.grants import (
    ClientCredentials,
    EnterpriseManaged,
    OAuth,
    WorkloadIdentity,
)
from dovetail.client.oauth.storage import FileStore, MemoryStore, Store

__all__ = [
    "Authorizer",
    "Browser",
    "ClientCredentials",
    "EnterpriseManaged",
    "FileStore",
    "LoopbackBrowser",
    "MemoryStore",
    "OAuth",
    "OwnBrowser",
    "PrivateKey",
    "Store",
    "Visit",
    "WorkloadIdentity",
    "client_metadata_document",
]
