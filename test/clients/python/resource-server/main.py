"""`main.py introspection` or `main.py key_set`: an API that tells its callers who they are."""

import sys
from collections.abc import Iterable
from importlib import import_module
from wsgiref.simple_server import make_server
from wsgiref.types import StartResponse, WSGIEnvironment

from protect import protect


def whoami(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [environ["gatepost.user"].encode()]


verify = import_module(sys.argv[1]).verify
with make_server("127.0.0.1", 0, protect(verify, whoami)) as server:
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
