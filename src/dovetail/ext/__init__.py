"""Extensions of MCP, written with nothing but the public hooks of ``Server``."""
