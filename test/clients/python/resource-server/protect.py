"""Lets only requests in whose access token is good, and has the scopes: a dependency of FastAPI."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes


@dataclass(frozen=True)
class Token:
    user: str
    scopes: frozenset[str]


class Unavailable(Exception):
    """Whether the token is good cannot be said at the moment."""


Sent = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]


def protect(verify: Callable[[str], Token | None]) -> Callable[[SecurityScopes, Sent], Token]:
    # No coroutine: FastAPI runs it in a thread, as it waits for auth.
    def token_of(needed: SecurityScopes, sent: Sent) -> Token:
        if sent is None:
            raise challenge(401, "Bearer")
        try:
            token = verify(sent.credentials)
        except Unavailable as error:
            raise HTTPException(503, headers={"Retry-After": "1"}) from error
        if token is None:
            raise challenge(401, 'Bearer error="invalid_token"')
        if not token.scopes.issuperset(needed.scopes):
            raise challenge(403, f'Bearer error="insufficient_scope", scope="{needed.scope_str}"')
        return token

    return token_of


def challenge(status: int, value: str) -> HTTPException:
    return HTTPException(status, headers={"WWW-Authenticate": value})
