"""The protocol as a contract that a program holds any server to.

``rules`` says what a rule is, ``probes`` holds the rules with the code that
tries each, ``channel`` and its siblings carry raw frames to the server under
test, ``run`` plans and judges, ``report`` tells.
"""
