"""Authlib: it validates both discovery documents by their specifications, and its client uses what they name.

Authlib has no types: what comes of it is named here.
"""

import os
from typing import Any

import httpx
import world

# It takes plain HTTP only where it is told to.
os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"

from authlib.integrations.httpx_client import OAuth2Client  # type: ignore[import-untyped]  # noqa: E402
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata  # type: ignore[import-untyped]  # noqa: E402
from authlib.oauth2.rfc8414 import get_well_known_url as rfc8414_url  # noqa: E402
from authlib.oidc.discovery import OpenIDProviderMetadata  # type: ignore[import-untyped]  # noqa: E402
from authlib.oidc.discovery import get_well_known_url as openid_url  # noqa: E402

ISSUER = os.environ["GATEPOST_ISSUER"]


def discover(kind: Any, url: str) -> Any:
    """It knows no challenge: where there are codes, it wants an authorization endpoint. All else has to be good."""
    metadata = kind(httpx.get(url).raise_for_status().json())
    try:
        metadata.validate()
    except ValueError as error:
        assert str(error) == '"authorization_endpoint" is required', error
    else:
        raise AssertionError("Authlib knows the challenge: docs/auth/discovery.md says that it does not")
    grants = [grant for grant in metadata["grant_types_supported"] if grant != "authorization_code"]
    kind({**metadata, "grant_types_supported": grants}).validate()
    return metadata


server = discover(AuthorizationServerMetadata, rfc8414_url(ISSUER, external=True))
assert server["issuer"] == ISSUER
assert dict(discover(OpenIDProviderMetadata, openid_url(ISSUER, external=True))).items() >= dict(server).items()

user = world.new_id("u")
identity = {"id": user, "phone": world.new_phone()}
httpx.post(f"{world.AUTH_URL}/v1/identities", json=identity, auth=world.INTERNAL).raise_for_status()

client = OAuth2Client(*world.BACKEND, token_endpoint_auth_method="client_secret_basic")
first = client.fetch_token(server["token_endpoint"], grant_type="auth", auth_id=user)
second = client.refresh_token(server["token_endpoint"], first["refresh_token"])
assert second["access_token"] != first["access_token"]


def introspect() -> Any:
    token = second["access_token"]
    return client.introspect_token(server["introspection_endpoint"], token, auth=world.API).json()


assert introspect()["sub"] == user
client.revoke_token(server["revocation_endpoint"], second["refresh_token"]).raise_for_status()
assert introspect() == {"active": False}
