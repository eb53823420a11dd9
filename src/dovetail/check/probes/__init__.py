"""The rules, by what they are about. Importing this package registers them all."""

from dovetail.check.probes import (
    capabilities,
    content,
    envelope,
    http,
    lifecycle,
    lists,
    log,
    modern,
    robust,
    stdio,
    unseen,
)

__all__ = [
    "capabilities",
    "content",
    "envelope",
    "http",
    "lifecycle",
    "lists",
    "log",
    "modern",
    "robust",
    "stdio",
    "unseen",
]
