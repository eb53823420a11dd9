"""The client: any server, any revision."""
