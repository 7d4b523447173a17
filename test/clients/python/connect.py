"""Creates a user, signs it in and saves a device of it."""

import os
import time
from base64 import b64encode
from datetime import UTC, datetime, timedelta

import auth_client
import push_client
from auth_client.api.identities import create_identity
from auth_client.api.o_auth import generate_tokens
from auth_client.models import Identity, IdentityCreation, TokenPair, TokenRequest
from push_client.api.devices import save_push_token
from push_client.models import PushToken


def auth_as(client: str, secret: str) -> auth_client.AuthenticatedClient:
    basic = b64encode(f"{client}:{secret}".encode()).decode()
    url = os.environ["GATEPOST_AUTH_URL"]
    return auth_client.AuthenticatedClient(base_url=url, token=basic, prefix="Basic")


def register(user: str, phone: str) -> TokenPair:
    internal = auth_as("internal", os.environ["GATEPOST_INTERNAL_SECRET"])
    identity = create_identity.sync(client=internal, body=IdentityCreation(id=user, phone=phone))
    if not isinstance(identity, Identity):
        raise RuntimeError(f"the identity was not created: {identity}")
    backend = auth_as("backend", os.environ["GATEPOST_BACKEND_SECRET"])
    grant = TokenRequest(grant_type="auth", auth_id=user)
    pair = generate_tokens.sync(client=backend, body=grant)
    if not isinstance(pair, TokenPair):
        raise RuntimeError(f"no tokens were issued: {pair}")
    return pair


def save_device(access_token: str, token: str) -> None:
    client = push_client.AuthenticatedClient(base_url=os.environ["GATEPOST_PUSH_URL"], token=access_token)
    expiration = datetime.now(UTC) + timedelta(days=365)
    device = PushToken(token=token, expiration=expiration.isoformat())
    response = save_push_token.sync_detailed(client=client, body=device)
    if response.status_code != 204:
        raise RuntimeError(f"the device was not saved: {response.parsed}")


now = time.time_ns() // 1_000_000
tokens = register(f"u-{now}", f"+1202{2_000_000 + now % 8_000_000}")
save_device(tokens.access_token, f"device-{now}")
