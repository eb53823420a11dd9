"""A server on stdio that misbehaves as its first argument says. Not a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

MODE = sys.argv[1]


def say(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def answer(request: dict, result: object) -> None:
    say({"jsonrpc": "2.0", "id": request["id"], "result": result})


def die(*words: str, code: int = 3) -> None:
    print(*words, file=sys.stderr, flush=True)
    os._exit(code)


def start() -> None:
    if MODE == "dies-at-once":
        die("no such luck")
    if MODE == "silent":
        time.sleep(1000)
    if MODE == "closes-stdout":
        os.close(1)
        time.sleep(1000)
    if MODE == "closes-stdin":
        os.close(0)
        time.sleep(1000)
    if MODE in ("deaf", "stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN if MODE == "stubborn" else signal.SIG_DFL)
    if MODE == "family":
        child = [sys.executable, "-c", "import time; time.sleep(1000)"]
        kids = [subprocess.Popen(child, stdin=subprocess.DEVNULL) for _ in range(2)]
        print(*(kid.pid for kid in kids), file=sys.stderr, flush=True)
    if MODE == "garbage":
        print("Welcome to the server!")
        sys.stdout.buffer.write(b"\xff\xfe\x00\n{broken\n[1,2\nnull\n\n")
        sys.stdout.flush()
    if MODE == "chatty":
        sys.stderr.write("x" * 1_000_000 + "\nlast words\n")
        sys.stderr.flush()


def serve(request: dict) -> None:
    method = request.get("method")
    if method == "server/discover":
        if MODE == "dies-in-probe":
            die("probed to death")
        say({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "?"}})
    elif method == "initialize":
        if MODE == "dies-in-handshake":
            die("shaken")
        info = {"name": "unruly", "version": "1"}
        known = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        answer(request, known)
    elif method == "tools/list":
        answer(request, {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        call(request)


def call(request: dict) -> None:
    if MODE == "dies-in-call":
        die("Traceback: it was the tool", code=7)
    if MODE == "killed-in-call":
        os.kill(os.getpid(), signal.SIGKILL)
    if MODE == "half-an-answer":
        sys.stdout.write('{"jsonrpc":"2.0","id":')
        sys.stdout.flush()
        die("half")
    if MODE == "endless-line":
        head = {"jsonrpc": "2.0", "id": request["id"]}
        sys.stdout.write(json.dumps(head)[:-1] + ', "result": {"content": [{"text": "')
        for _ in range(200):
            sys.stdout.write("x" * 100_000)
        sys.stdout.write('"}]}}\n')
    text = {"type": "text", "text": os.environ.get("UNRULY", "fine")}
    answer(request, {"content": [text]})


start()
for line in sys.stdin:
    serve(json.loads(line))
if MODE in ("deaf", "stubborn"):
    time.sleep(1000)
