"""Several processes on one listening socket: started, watched, restarted, ended together."""

import argparse
import logging
import multiprocessing
import signal
import socket
import sys
import time
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess

__all__ = ["supervise"]

log = logging.getLogger("dovetail")

# A worker that gives up sooner than this after its start would do so again: then all of them
# end. One that was killed is only replaced.
_MIN_SECONDS = 10.0

# New interpreters: a forked one would share the parent's loop, random state and node tag.
_spawn = multiprocessing.get_context("spawn")


def supervise(options: argparse.Namespace, listener: socket.socket) -> int:
    """Keep the workers running until a signal ends them all; the exit code."""
    stopping: list[int] = []
    before = {
        number: signal.signal(number, lambda number, frame: stopping.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    workers = [_Worker(options, listener) for _ in range(options.workers)]
    failed = False
    while not stopping and not failed:
        wait([worker.process.sentinel for worker in workers], timeout=0.2)
        for index, worker in enumerate(workers):
            if worker.process.exitcode is None or stopping:
                continue
            log.error("worker %s ended with %s", worker.process.pid, worker.process.exitcode)
            failed = worker.process.exitcode > 0 and worker.age < _MIN_SECONDS
            workers[index] = worker if failed else _Worker(options, listener)
    for worker in workers:
        worker.process.terminate()
    for worker in workers:
        worker.process.join()
    for number, handler in before.items():
        signal.signal(number, handler)
    return 1 if failed else 0


class _Worker:
    def __init__(self, options: argparse.Namespace, listener: socket.socket) -> None:
        self._since = time.monotonic()
        self.process: SpawnProcess = _spawn.Process(target=_work, args=(options, listener))
        self.process.start()

    @property
    def age(self) -> float:
        return time.monotonic() - self._since


def _work(options: argparse.Namespace, listener: socket.socket) -> None:
    from dovetail.cli.http import app
    from dovetail.transport.http.run import serve

    logging.basicConfig(level=options.log_level.upper(), stream=sys.stderr)
    serve(app(options, listener), listener)
