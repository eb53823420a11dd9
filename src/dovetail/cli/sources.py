"""Check, try, sign, verify, compare and endorse registries of sources."""

from dovetail.servers.sources.commands import add_arguments, run

__all__ = ["add_arguments", "run"]
