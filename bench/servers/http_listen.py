"""uvicorn, the same for all: uvloop, httptools, no access log. The port is given."""

import sys

import uvicorn


def listen(app) -> None:
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="error",
    )
