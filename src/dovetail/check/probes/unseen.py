"""Sentences of the contract that no program can see from outside, with the reason."""
