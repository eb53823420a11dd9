"""What several nodes of one service share: the interface, and the engines behind it."""
