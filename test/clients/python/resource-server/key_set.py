"""Local: by the key set, which is fetched now and then."""

import json
import logging
import os
import threading
import time
import urllib.request

import jwt
from protect import Token, Unavailable

URL = f"{os.environ['GATEPOST_AUTH_URL']}/v1/jwks"
# Seconds.
MAX_AGE = 300
COOLDOWN = 30

keys: dict[str, jwt.PyJWK] = {}
fetched_at = tried_at = float("-inf")
fetching = threading.Lock()


def verify(token: str) -> Token | None:
    """None if the token is not good."""
    try:
        header = jwt.get_unverified_header(token)
        if header.get("typ") != "at+jwt" or "kid" not in header:
            return None
        key = key_of(header["kid"])
        if key is None:
            return None
        claims = jwt.decode(
            token,
            key,
            algorithms=["RS256"],
            issuer=os.environ["GATEPOST_ISSUER"],
            audience=os.environ["GATEPOST_AUDIENCE"],
            options={"require": ["exp", "iss", "aud", "sub", "client_id"]},
            leeway=60,
        )
    except jwt.PyJWTError:
        return None
    # A client that acts for no user.
    if claims["sub"] == claims["client_id"]:
        return None
    return Token(claims["sub"], frozenset(claims.get("scope", "").split()))


def key_of(kid: str) -> jwt.PyJWK | None:
    """None if there is no such key; that cannot be said where nobody has looked since the request came."""
    before = keys
    # One thread fetches; the others go on with the keys that are known.
    if time.monotonic() > fetched_at + MAX_AGE and not fetching.locked():
        fetch()
    if kid not in keys and keys is before:
        fetch()
    if kid not in keys and keys is before:
        raise Unavailable
    return keys.get(kid)


def fetch() -> None:
    """Whatever goes wrong, the known keys serve on. Forged tokens cannot make it fetch more often."""
    global keys, fetched_at, tried_at
    with fetching:
        now = time.monotonic()
        if now < tried_at + (COOLDOWN if keys else 1):
            return
        tried_at = now
        try:
            with urllib.request.urlopen(URL, timeout=2) as response:
                found = jwt.PyJWKSet.from_dict(json.load(response)).keys
            keys = {key.key_id: key for key in found if key.key_id}
            fetched_at = now
        except Exception:
            logging.exception("%s gave no key set", URL)
