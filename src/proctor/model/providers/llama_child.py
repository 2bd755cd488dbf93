"""The program of a llama.cpp server's own process. It is run by its path, so that it imports nothing of proctor.

The process reads its settings from the first line of standard input, loads the model, waits until the server says
that it is healthy, writes the server's address as one line, and lives until standard input ends: whoever started it
holds the other end, so it cannot outlive them, however they die.

Loading holds Python's lock, for minutes with a large model; no thread and no handler of Python's runs meanwhile. So
the end of standard input is also made a signal whose default is to end the process, which the kernel does by itself.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import urllib.error
import urllib.request
from typing import Any, Final

FAILED: Final = 3
HEALTH_PAUSE: Final = 0.05  # seconds between two looks at the health of a server that is loading


def main() -> int:
    """Serve until standard input ends."""
    with open(0, "rb", buffering=0, closefd=False) as given:  # unbuffered: what follows is only watched for its end
        settings = json.loads(given.readline())
    answer = os.dup(1)
    os.dup2(2, 1)  # what the library prints must not be taken for the address
    die_with_input()
    try:
        server = serve(settings)
    except Exception as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    address = str(server.listening_address)
    await_health(address)
    os.write(answer, f"{address}\n".encode())
    threading.Event().wait()
    return 0


def serve(settings: dict[str, Any]) -> Any:
    """The library's server; it answers in threads of its own."""
    xllamacpp: Any = importlib.import_module("xllamacpp")  # it ships no types
    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.n_parallel = settings["parallel"]
    params.n_ctx = settings["context"] * settings["parallel"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.api_keys = [settings["key"]]
    params.port = 0  # the kernel chooses one that is free
    params.verbosity = 1  # errors only
    params.ui = False
    return xllamacpp.Server(params)


def await_health(address: str) -> None:
    """Wait until the server answers that it is ready; it says 503 while the model is loaded."""
    wait = threading.Event().wait
    while True:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=10):  # noqa: S310  our own loopback address
                return
        except (urllib.error.URLError, OSError):
            wait(HEALTH_PAUSE)


def die_with_input() -> None:
    """End this process when standard input ends: by the kernel where it can (Linux), and by a thread everywhere."""
    threading.Thread(target=_watch_input, daemon=True).start()
    if sys.platform == "linux":
        import fcntl

        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)


def _watch_input() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
