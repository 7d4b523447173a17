"""Strict: auth is asked about each token."""

import os

import httpx
from protect import Token, Unavailable

AUDIENCE = os.environ["GATEPOST_AUDIENCE"]
auth = httpx.Client(
    base_url=os.environ["GATEPOST_AUTH_URL"],
    auth=("api", os.environ["GATEPOST_API_SECRET"]),
    timeout=2,
)


def verify(token: str) -> Token | None:
    """Asks anew for each request: a cached response knows of no revocation. None if the token is not good."""
    try:
        response = auth.post("/oauth2/v1/introspect", data={"token": token})
        result = response.raise_for_status().json()
        if not result["active"] or AUDIENCE not in result["aud"]:
            return None
        # A client that acts for no user.
        if result["sub"] == result["client_id"]:
            return None
        return Token(result["sub"], frozenset(result.get("scope", "").split()))
    except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
        raise Unavailable from error
