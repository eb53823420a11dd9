"""The sources server: four tools, the registries as resources, a prompt.

Its policies are those of requirement 004: minimal errors, -32601 for an unknown tool (-32602 in
2026-07-28, where -32601 is an unknown method), -32602 for unfit arguments, no batches, and a
strict handshake.
"""

from typing import Annotated, Any

from msgspec import Meta

import dovetail
from dovetail import ResourceNotFound, Server
from dovetail.server.resources import Resource
from dovetail.servers.sources.catalog import Catalog
from dovetail.servers.sources.matching import DEFAULT_THRESHOLD
from dovetail.servers.sources.provenance import Provenance, file_uri
from dovetail.servers.sources.service import (
    Categories,
    CategorySources,
    Endorsements,
    Found,
    Service,
)

__all__ = ["CATEGORY_URI", "SourcesServer"]

CATEGORY_URI = "sources://category/{slug}"
# A person picks from a list; beyond this they search, and the template with completion serves that.
MAX_LISTED_CATEGORIES = 200
# A paragraph. What is longer is a document, not a question.
MAX_QUERY = 1000

INSTRUCTIONS = """\
Where to read about a subject: for each category a curator chose exactly three sources, ranked. \
Call get_sources before you search the web or answer from memory on a technical subject, and send \
the user to what it returns. An empty list is an answer: the registry has nothing on that subject. \
get_provenance says who vouches for the registry and how to check it."""

GET_SOURCES = """\
Find the three sources a curator recommends for a subject, ranked, with title, link and a \
description of each. Use it when a user wants to learn something or when you need a reference you \
can rely on.

Write the subject in a few words, as you would in a search box: the names of the technology and \
of the problem matter, polite words do not. Examples: {"query": "rust lifetimes"}; {"query": \
"how do I undo a git commit"}; {"query": "kubernets for begginers"} (typos are understood); \
{"query": "css grid", "threshold": 0.6} (only if sure).

Look at match before you use the result: score is the share of the query's informative words the \
category explains (0 to 1), matched are these words, runners_up are the next best categories. If \
matched is not what the question is about, treat it as no match. No match is not an error: \
category is null, sources is empty and message says so; then try other words once, or look at \
list_categories, or say that the registry has nothing on it."""

LIST_CATEGORIES = """\
List every category of the registry with its slug, name and domain tags. Use it to see what is \
covered, or to choose when get_sources found no match: call get_sources again with the name of the \
category you chose. Example: {} gives {"categories": [{"slug": "git", "name": "Git Version \
Control", "tags": ["tools", "devops"]}, ...]}."""

GET_PROVENANCE = """\
Say who curates the registry, whether it is signed and with which public key, how old it is, and, \
in verification, step by step how to check that with the programs minisign or signify. Use it when \
a user asks who chose these sources or why to trust them; pass the steps on as they are. Example: \
{} gives {"curator": "...", "public_key": null, "signed": false, "serial": 1, ...}. The values at \
the top are those of the first registry file; registries has all of them."""

GET_ENDORSEMENTS = """\
List who else vouches for the registry or for single categories: statements signed with keys the \
operator of this server trusts, checked by the server. An empty list means that there are none, \
not that something is wrong. Example: {} gives {"endorsements": []}."""

QUERY = "The subject in a few words, for example: postgres replication"
THRESHOLD = (
    "Lowest score that counts as a match, 0 to 1. Leave it out unless the default gave too little "
    "(try 0.25) or something doubtful (try 0.6)."
)


class SourcesServer:
    """The server, and what changes on it when the registries do."""

    def __init__(self, service: Service, threshold: float = DEFAULT_THRESHOLD) -> None:
        self.service = service
        self.server = Server(
            "dovetail-sources",
            version=dovetail.__version__,
            title="Three good sources",
            instructions=INSTRUCTIONS,
            errors="minimal",
            unknown_tool=-32601,
            bad_arguments="error",
            handshake="strict",
            batches=False,
        )
        self._listed: dict[str, tuple[str, Resource[[], Any]]] = {}  # and what was said of it
        self._add_tools(threshold)
        self._add_categories()
        self._add_prompt(threshold)
        self._sync(service.catalog)

    def _add_tools(self, default: float) -> None:
        service, tool = self.service, self.server.tool

        @tool(description=GET_SOURCES, inline=True, read_only=True, open_world=False)
        def get_sources(
            query: Annotated[str, Meta(min_length=1, max_length=MAX_QUERY, description=QUERY)],
            threshold: Annotated[float, Meta(ge=0, le=1, description=THRESHOLD)] = default,
        ) -> Found:
            return service.get_sources(query, threshold)

        @tool(description=LIST_CATEGORIES, inline=True, read_only=True, open_world=False)
        def list_categories() -> Categories:
            return service.list_categories()

        @tool(description=GET_PROVENANCE, inline=True, read_only=True, open_world=False)
        def get_provenance() -> Provenance:
            return service.get_provenance()

        @tool(description=GET_ENDORSEMENTS, read_only=True, open_world=False)
        def get_endorsements() -> Endorsements:
            return service.get_endorsements()  # reads files: in a thread

    def _add_categories(self) -> None:
        @self.server.resource(
            CATEGORY_URI, name="category", title="A category", mime_type="application/json"
        )
        def category(slug: str) -> CategorySources:
            """The three sources of a category, by its slug."""
            found = self.service.category(slug)
            if found is None:
                raise ResourceNotFound(CATEGORY_URI.format(slug=slug))
            return found

        category.complete("slug")(self.service.slugs)

    def _add_prompt(self, threshold: float) -> None:
        @self.server.prompt(title="Research a topic with vetted sources")
        def research(
            topic: Annotated[str, Meta(description="What to research, in a few words")],
        ) -> str:
            """Research a topic, starting from the three sources the registry has for it."""
            return self.service.research(topic, threshold)

        research.complete("topic")(self.service.names)

    # -- what depends on the registries ------------------------------------------------

    def replace(self, catalog: Catalog) -> None:
        """Serve other registries from now on, and tell who should know."""
        old, self.service.catalog = self.service.catalog, catalog
        self.service.refused = {}
        self._sync(catalog)
        for uri in changed_uris(old, catalog):
            self.server.updated(uri)

    def _sync(self, catalog: Catalog) -> None:
        """Make the list of resources what the registries are now."""
        wanted = _resources(catalog)
        for uri in [uri for uri, (said, _) in self._listed.items() if wanted.get(uri) != said]:
            self._listed.pop(uri)[1].remove()
        for uri, said in wanted.items():
            if uri not in self._listed:
                self._listed[uri] = said, self._add(uri, said)

    def _add(self, uri: str, said: str) -> Resource[[], Any]:
        name = uri.rpartition("/")[2]
        add = self.server.resource
        if uri == CATEGORY_URI.format(slug=name):
            register = add(uri, name=name, title=said, mime_type="application/json")
            return register(lambda: self.service.category(name))
        mime_type = "application/json" if name.endswith(".json") else "text/plain"
        register = add(uri, name=name, description=said, mime_type=mime_type)
        return register(lambda: files(self.service.catalog)[name][0])


def files(catalog: Catalog) -> dict[str, tuple[str, str]]:
    """The registry files and what belongs to them: exact contents, and a word about each."""
    found: dict[str, tuple[str, str]] = {}
    for one in catalog.registries:
        about = f"by {one.registry.curator}, serial {one.registry.serial}"
        found[one.name] = one.data.decode(), f"The exact bytes of the registry {about}"
        if one.minisig:
            found[f"{one.name}.minisig"] = one.minisig, f"The minisign signature of {one.name}"
        if one.signify:
            found[f"{one.name}.sig"] = one.signify, f"The signify signature of {one.name}"
        if one.key:
            found[f"{one.name}.pub"] = one.key.file, "The public key the signature was checked with"
    return found


def _resources(catalog: Catalog) -> dict[str, str]:
    """What is listed: URI and a word about it."""
    wanted = {file_uri(name): said for name, (_, said) in files(catalog).items()}
    if len(catalog.categories) <= MAX_LISTED_CATEGORIES:
        wanted |= {
            CATEGORY_URI.format(slug=slug): category.name
            for slug, category in catalog.categories.items()
        }
    return wanted


def changed_uris(old: Catalog, new: Catalog) -> list[str]:
    """The resources both have, with other contents."""
    before, after = files(old), files(new)
    uris = [file_uri(name) for name in before if name in after and before[name] != after[name]]
    return uris + [
        CATEGORY_URI.format(slug=slug)
        for slug, category in old.categories.items()
        if new.categories.get(slug, category) != category
    ]
