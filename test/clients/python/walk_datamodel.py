"""Walks through both services with the pydantic models that datamodel-code-generator generates, and httpx.

Requests are sent as `model_dump` writes them, with null for each optional member that is absent.
"""

from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel

import auth_models as auth
import push_models as push
import world

M = TypeVar("M", bound=BaseModel)


def done(response: httpx.Response, status: HTTPStatus) -> httpx.Response:
    assert response.status_code == status, response.text
    return response


def read(model: type[M], response: httpx.Response, status: HTTPStatus = HTTPStatus.OK) -> M:
    return model.model_validate_json(done(response, status).content)


def dump(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True)


identities = httpx.Client(base_url=world.AUTH_URL, auth=world.INTERNAL, timeout=30)


def as_user(token: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=f"{world.PUSH_URL}/v1/pushprovider", headers=headers, timeout=30)


def create_user() -> str:
    user, phone = world.new_id("pydantic"), world.new_phone()
    creation = auth.IdentityCreation.model_validate({"id": user, "phone": phone})
    assert dump(creation)["email"] is None
    created = read(auth.Identity, identities.post("/v1/identities", json=dump(creation)))
    assert dump(created)["id"] == user and dump(created)["phone"] == phone
    again = identities.post("/v1/identities", json=dump(creation))
    assert read(auth.Problem, again, HTTPStatus.CONFLICT).code == "identity_id_taken"
    found = identities.get("/v1/identities/find-by-phone", params={"phone": phone})
    assert dump(read(auth.FoundIdentity, found))["id"] == user

    # On update null clears: only what is set is sent.
    change = auth.IdentityChange.model_validate({"email": f"{user}@example.com"})
    body = change.model_dump(mode="json", exclude_unset=True)
    done(identities.put(f"/v1/identities/{user}", json=body), HTTPStatus.NO_CONTENT)
    identity = read(auth.Identity, identities.get(f"/v1/identities/{user}"))
    assert dump(identity)["email"] == f"{user}@example.com"
    assert dump(identity)["authenticationTypes"] == ["PHONE_OTP"]
    return user


def tokens(client: tuple[str, str], grant: dict[str, str]) -> auth.TokenPair:
    form = dump(auth.TokenRequest.model_validate(grant))
    pair = read(auth.TokenPair, httpx.post(f"{world.AUTH_URL}/oauth2/v1/tokens", data=form, auth=client))
    assert dump(pair)["token_type"] == "Bearer" and pair.expires_in > 0
    return pair


def create_operator() -> str:
    """The access token of somebody who may send notifications."""
    user, password = world.new_id("pydantic-operator"), world.new_id("password")
    creation = auth.IdentityCreation.model_validate({"id": user, "phone": world.new_phone()})
    done(identities.post("/v1/identities", json=dump(creation)), HTTPStatus.OK)
    secret = dump(auth.IdentityPassword(password=password))
    done(identities.put(f"/v1/identities/{user}/password", json=secret), HTTPStatus.NO_CONTENT)
    grant = {"grant_type": "password", "username": user, "password": password}
    return tokens(world.BACKOFFICE, grant).access_token


def introspect(token: str) -> auth.Introspection:
    form = dump(auth.TokenReference(token=token))
    return read(auth.Introspection, identities.post("/oauth2/v1/introspect", data=form, auth=world.API))


def refresh(user: str, first: auth.TokenPair) -> auth.TokenPair:
    active = introspect(first.access_token)
    assert active.active and active.sub == user and active.clientId == "backend"
    assert active.userInfo is not None and active.userInfo.userId == user
    assert active.exp is not None and active.exp > datetime.now(UTC).timestamp()
    inactive = introspect("garbage")
    assert inactive.model_dump(exclude_unset=True) == {"active": False}

    again = {"grant_type": "refresh_token", "refresh_token": first.refresh_token}
    second = tokens(world.BACKEND, again)
    assert second.refresh_token != first.refresh_token
    garbage = {"grant_type": "refresh_token", "refresh_token": "garbage"}
    refused = httpx.post(f"{world.AUTH_URL}/oauth2/v1/tokens", data=garbage, auth=world.BACKEND)
    assert read(auth.OAuthError, refused, HTTPStatus.BAD_REQUEST).error == "invalid_grant"
    return second


def send_and_read(user: str, token: str, operator: str) -> None:
    app, backoffice = as_user(token), as_user(operator)
    expiration = datetime.now(UTC) + timedelta(days=365)
    device = {"token": world.new_id("device"), "expiration": expiration.isoformat()}
    body = dump(push.PushToken.model_validate(device))
    done(app.post("/token", json=body, headers={"barrier-user-utc-offset": "330"}), HTTPStatus.NO_CONTENT)

    title = world.new_id("Hello")
    content = {"title": title, "message": "From pydantic", "utcOffsets": [330]}
    notification = push.PushNotification.model_validate(content)
    sent = done(backoffice.post("/push", json=dump(notification)), HTTPStatus.NO_CONTENT)

    def arrived() -> bool:
        query = {"markViewed": True, "size": 50}
        page = read(push.HistoryPage, app.get("/notifications-history", params=query))
        for entry in page.content:
            if entry.notification.title == title:
                assert entry.userId == user and entry.notification.message == "From pydantic"
                return True
        return False

    world.eventually("the notification is in the history", arrived)
    world.eventually(
        "everything is viewed",
        lambda: read(push.NotificationsSummary, app.get("/notifications-summary")).viewed,
    )
    notification_id = sent.headers["Notification-Id"]
    progress = read(push.NotificationProgress, backoffice.get(f"/notifications/{notification_id}"))
    assert dump(progress)["id"] == notification_id and progress.title == title
    refused = app.get(f"/notifications/{notification_id}")
    assert read(push.Problem, refused, HTTPStatus.FORBIDDEN).code == "forbidden"

    text = {"title": "On its way", "message": "It comes tomorrow."}
    extras = {"link": "https://shop.example.com/orders/4711", "data": {"orderId": "4711"}}
    personal = {"audience": {"users": [user]}, "content": {"texts": {"en": text}, **extras}}
    body = dump(push.NotificationCreation.model_validate(personal))
    created = read(push.CreatedNotification, backoffice.post("/notifications", json=body), HTTPStatus.CREATED)
    assert created.warnings == []
    entry = dump(read(push.HistoryPage, app.get("/notifications-history")).content[0])
    assert entry["id"] == dump(created)["id"]
    assert {"link": entry["link"], "data": entry["data"]} == extras
    done(app.request("DELETE", "/token", json={"token": device["token"]}), HTTPStatus.NO_CONTENT)


def revoke(pair: auth.TokenPair) -> None:
    form = dump(auth.TokenReference(token=pair.refresh_token))
    revoked = httpx.post(f"{world.AUTH_URL}/oauth2/v1/revoke", data=form, auth=world.BACKEND)
    assert read(auth.Revocation, revoked).message
    assert not introspect(pair.access_token).active
    refused = as_user(pair.access_token).get("/notifications-summary")
    assert read(push.Problem, refused, HTTPStatus.UNAUTHORIZED).code == "unauthenticated"


def walk() -> None:
    user, operator = create_user(), create_operator()
    first = tokens(world.BACKEND, {"grant_type": "auth", "auth_id": user})
    second = refresh(user, first)
    send_and_read(user, second.access_token, operator)
    revoke(second)
    done(identities.delete(f"/v1/identities/{user}"), HTTPStatus.NO_CONTENT)
    gone = identities.get(f"/v1/identities/{user}")
    assert read(auth.Problem, gone, HTTPStatus.NOT_FOUND).code == "identity_not_found"


if __name__ == "__main__":
    walk()
