"""A first server: one tool, one resource, one prompt."""

from dovetail import Server

server = Server("quickstart", version="1.0.0")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.resource("greeting://{name}")
def greeting(name: str) -> str:
    """A friendly greeting."""
    return f"Hello, {name}!"


@server.prompt
def review(code: str) -> str:
    """Ask for a code review."""
    return f"Please review this code:\n\n{code}"


if __name__ == "__main__":
    server.run()
