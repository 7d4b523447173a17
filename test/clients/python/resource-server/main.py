"""`main.py introspection` or `main.py key_set`: an API that tells its callers who they are."""

import socket
import sys
from importlib import import_module
from typing import Annotated

import uvicorn
from fastapi import FastAPI, Security
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import PlainTextResponse
from protect import Token, protect

verify = import_module(sys.argv[1]).verify
app = FastAPI()
app.add_middleware(
    CORSMiddleware,
    allow_origins=["https://shop.example.com"],
    allow_headers=["authorization"],
    expose_headers=["WWW-Authenticate", "Retry-After"],
)
Orders = Annotated[Token, Security(protect(verify), scopes=["orders"])]


@app.get("/", response_class=PlainTextResponse)
def whoami(token: Orders) -> str:
    return token.user


listener = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app)).run(sockets=[listener])
