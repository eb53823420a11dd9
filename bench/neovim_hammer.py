"""Calls one tool of the editor's socket as fast as answers come, until it is ended."""

import sys

from neovim_client import Client

port, tool = int(sys.argv[1]), sys.argv[2]
with Client(port, sys.stdin.readline().strip()) as client:
    client.times(tool, 10)
    print("hammering", flush=True)
    while True:
        client.pipelined(tool, 200, 8)
