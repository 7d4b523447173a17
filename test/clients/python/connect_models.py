"""Creates a user, and sets the user's e-mail address."""

import os
import time

import httpx

from auth_models import IdentityChange, IdentityCreation

internal = ("internal", os.environ["GATEPOST_INTERNAL_SECRET"])
auth = httpx.Client(base_url=os.environ["GATEPOST_AUTH_URL"], auth=internal)

now = time.time_ns() // 1_000_000
user, phone = f"u-{now}", f"+1202{2_000_000 + now % 8_000_000}"
creation = IdentityCreation.model_validate({"id": user, "phone": phone})
auth.post("/v1/identities", json=creation.model_dump(mode="json")).raise_for_status()

# On update null clears: only what is set is sent.
change = IdentityChange.model_validate({"email": f"{user}@example.com"})
body = change.model_dump(mode="json", exclude_unset=True)
auth.put(f"/v1/identities/{user}", json=body).raise_for_status()
