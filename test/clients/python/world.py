"""What every walk needs: where the servers are, and users that nobody else has."""

import os
import time
import uuid
from base64 import b64encode
from collections.abc import Callable
from random import SystemRandom
from typing import Final

AUTH_URL: Final = os.environ["GATEPOST_AUTH_URL"]
PUSH_URL: Final = os.environ["GATEPOST_PUSH_URL"]
GRPC_ADDRESS: Final = os.environ["GATEPOST_GRPC"]

#: Id and secret of the development clients.
INTERNAL: Final = ("internal", os.environ["GATEPOST_INTERNAL_SECRET"])
API: Final = ("api", os.environ["GATEPOST_API_SECRET"])
BACKEND: Final = ("backend", os.environ["GATEPOST_BACKEND_SECRET"])
BACKOFFICE: Final = ("backoffice", os.environ["GATEPOST_BACKOFFICE_SECRET"])


def new_id(prefix: str) -> str:
    """An id that no earlier call has returned."""
    return f"{prefix}-{uuid.uuid4()}"


def new_phone() -> str:
    """A German mobile number in E.164 form, one of a hundred million."""
    return f"+49151{SystemRandom().randrange(100_000_000):08}"


def basic(client: tuple[str, str]) -> str:
    """What stands behind `Basic` in the Authorization header."""
    return b64encode(":".join(client).encode()).decode()


def eventually(what: str, ask: Callable[[], bool]) -> None:
    """Asks again until the answer is true.

    :raises AssertionError: after 30 seconds
    """
    deadline = time.monotonic() + 30
    while not ask():
        assert time.monotonic() < deadline, f"not within 30 seconds: {what}"
        time.sleep(0.1)
