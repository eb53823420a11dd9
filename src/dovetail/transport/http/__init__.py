"""Streamable HTTP and WebSocket as one ASGI application."""
