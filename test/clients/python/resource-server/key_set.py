"""Local: by the key set, which is fetched now and then."""

import os

import jwt
from protect import Token, Unavailable

keys = jwt.PyJWKClient(f"{os.environ['GATEPOST_AUTH_URL']}/v1/jwks", lifespan=300, timeout=2)


def verify(token: str) -> Token | None:
    """None if the token is not good."""
    try:
        decoded = jwt.decode_complete(
            token,
            keys.get_signing_key_from_jwt(token),
            algorithms=["RS256"],
            issuer=os.environ["GATEPOST_ISSUER"],
            audience=os.environ["GATEPOST_AUDIENCE"],
            options={"require": ["exp", "iss", "aud", "sub"]},
            leeway=60,
        )
    except (jwt.PyJWKClientConnectionError, OSError) as error:
        raise Unavailable from error
    except jwt.PyJWTError:
        return None
    if decoded["header"].get("typ") != "at+jwt":
        return None
    claims = decoded["payload"]
    return Token(claims["sub"], frozenset(claims.get("scope", "").split()))
