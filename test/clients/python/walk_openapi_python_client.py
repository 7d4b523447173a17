"""Walks through both services with the clients that openapi-python-client generates."""

from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TypeVar
from uuid import UUID

import world
from auth_client import AuthenticatedClient as AuthClient
from auth_client.api.identities import (
    create_identity,
    delete_identity,
    find_identity_by_phone,
    get_identity,
    set_identity_password,
    update_identity,
)
from auth_client.api.o_auth import generate_tokens, introspect_token, revoke_token
from auth_client.models import (
    FoundIdentity,
    Identity,
    IdentityChange,
    IdentityCreation,
    Introspection,
    IdentityPassword,
    OAuthError,
    Revocation,
    TokenPair,
    TokenReference,
    TokenRequest,
)
from auth_client.models import Problem as AuthProblem
from auth_client.types import Unset
from push_client import AuthenticatedClient as PushClient
from push_client.api.devices import delete_push_token, save_push_token
from push_client.api.history import get_notifications_history, get_notifications_summary
from push_client.api.operation import get_notification
from push_client.api.sending import create_notification, send_push_notification
from push_client.models import (
    Audience,
    CreatedNotification,
    HistoryEntryData,
    HistoryPage,
    NotificationCreation,
    NotificationProgress,
    NotificationTexts,
    NotificationsSummary,
    Problem,
    PushNotification,
    PushToken,
    PushTokenReference,
)

T = TypeVar("T")


def of(kind: type[T], answer: object) -> T:
    """The answer, if it is of this class."""
    assert isinstance(answer, kind), answer
    return answer


def as_client(client: tuple[str, str]) -> AuthClient:
    return AuthClient(base_url=world.AUTH_URL, token=world.basic(client), prefix="Basic")


def as_user(token: str) -> PushClient:
    return PushClient(base_url=world.PUSH_URL, token=token)


internal = as_client(world.INTERNAL)


def create_user() -> str:
    user, phone = world.new_id("python"), world.new_phone()
    creation = IdentityCreation(id=user, phone=phone, email=None)
    created = of(Identity, create_identity.sync(client=internal, body=creation))
    assert (created.id, created.phone) == (user, phone)
    again = of(AuthProblem, create_identity.sync(client=internal, body=creation))
    assert again.code == "identity_id_taken"
    found = of(FoundIdentity, find_identity_by_phone.sync(client=internal, phone=phone))
    assert found.id == user

    change = IdentityChange(email=f"{user}@example.com")
    changed = update_identity.sync_detailed(user, client=internal, body=change)
    assert changed.status_code is HTTPStatus.NO_CONTENT
    read = of(Identity, get_identity.sync(user, client=internal))
    assert read.email == f"{user}@example.com"
    assert not isinstance(read.authentication_types, Unset)
    assert read.authentication_types == ["PHONE_OTP"]
    return user


def tokens(client: tuple[str, str], request: TokenRequest) -> TokenPair:
    pair = of(TokenPair, generate_tokens.sync(client=as_client(client), body=request))
    assert pair.token_type == "Bearer" and pair.expires_in > 0
    return pair


def create_operator() -> str:
    """The access token of somebody who may send notifications."""
    user, password = world.new_id("python-operator"), world.new_id("password")
    create_identity.sync(client=internal, body=IdentityCreation(id=user, phone=world.new_phone()))
    done = set_identity_password.sync_detailed(user, client=internal, body=IdentityPassword(password=password))
    assert done.status_code is HTTPStatus.NO_CONTENT
    request = TokenRequest(grant_type="password", username=user, password=password)
    return tokens(world.BACKOFFICE, request).access_token


def introspect(token: str) -> Introspection:
    return of(Introspection, introspect_token.sync(client=as_client(world.API), body=TokenReference(token=token)))


def refresh(user: str, first: TokenPair) -> TokenPair:
    active = introspect(first.access_token)
    assert active.active and active.sub == user
    assert active.client_id == "backend" and active.token_type == "Bearer"
    assert not isinstance(active.user_info, Unset) and active.user_info.user_id == user
    assert not isinstance(active.exp, Unset) and active.exp > datetime.now(UTC).timestamp()
    assert not isinstance(active.aud, Unset) and "backend" in active.aud
    inactive = introspect("garbage")
    assert inactive.to_dict() == {"active": False}

    again = TokenRequest(grant_type="refresh_token", refresh_token=first.refresh_token)
    second = tokens(world.BACKEND, again)
    assert second.refresh_token != first.refresh_token
    garbage = TokenRequest(grant_type="refresh_token", refresh_token="garbage")
    refused = generate_tokens.sync(client=as_client(world.BACKEND), body=garbage)
    assert of(OAuthError, refused).error == "invalid_grant"
    return second


def in_a_year() -> str:
    return (datetime.now(UTC) + timedelta(days=365)).isoformat()


def send_and_read(user: str, token: str, operator: str) -> None:
    app, backoffice = as_user(token), as_user(operator)
    device = PushToken(token=world.new_id("device"), expiration=in_a_year())
    saved = save_push_token.sync_detailed(client=app, body=device, barrier_user_utc_offset="+05:30")
    assert saved.status_code is HTTPStatus.NO_CONTENT, saved

    title = world.new_id("Hello")
    notification = PushNotification(title=title, message="From Python", utc_offsets=[330])
    sent = send_push_notification.sync_detailed(client=backoffice, body=notification, idempotency_key=title)
    assert sent.status_code is HTTPStatus.NO_CONTENT, sent

    def arrived() -> bool:
        page = of(HistoryPage, get_notifications_history.sync(client=app, mark_viewed=True, size=50))
        for entry in page.content:
            if entry.notification.title == title:
                assert entry.user_id == user and entry.notification.message == "From Python"
                assert abs(entry.send_at - datetime.now(UTC)) < timedelta(hours=1)
                return True
        return False

    world.eventually("the notification is in the history", arrived)
    world.eventually(
        "everything is viewed",
        lambda: of(NotificationsSummary, get_notifications_summary.sync(client=app)).viewed,
    )
    notification_id = UUID(sent.headers["Notification-Id"])
    progress = of(NotificationProgress, get_notification.sync(notification_id, client=backoffice))
    assert progress.id == notification_id and progress.title == title
    assert of(Problem, get_notification.sync(notification_id, client=app)).code == "forbidden"
    send_to_user(user, app, backoffice)
    deleted = delete_push_token.sync_detailed(client=app, body=PushTokenReference(token=device.token))
    assert deleted.status_code is HTTPStatus.NO_CONTENT


def send_to_user(user: str, app: PushClient, backoffice: PushClient) -> None:
    """Sends to one user, with data."""
    text = {"title": "On its way", "message": "It comes tomorrow."}
    link, data = "https://shop.example.com/orders/4711", {"orderId": "4711"}
    content = NotificationTexts.from_dict({"texts": {"en": text}, "link": link, "data": data})
    creation = NotificationCreation(audience=Audience(users=[user]), content=content)
    created = of(CreatedNotification, create_notification.sync(client=backoffice, body=creation))
    assert created.warnings == []
    entry = of(HistoryPage, get_notifications_history.sync(client=app)).content[0]
    assert entry.id == created.id and entry.notification.title == text["title"] and entry.link == link
    assert of(HistoryEntryData, entry.data).to_dict() == data


def revoke(pair: TokenPair) -> None:
    reference = TokenReference(token=pair.refresh_token)
    confirmation = of(Revocation, revoke_token.sync(client=as_client(world.BACKEND), body=reference))
    assert confirmation.message
    assert not introspect(pair.access_token).active
    refused = get_notifications_summary.sync(client=as_user(pair.access_token))
    assert of(Problem, refused).code == "unauthenticated"


def delete_user(user: str) -> None:
    assert delete_identity.sync_detailed(user, client=internal).status_code is HTTPStatus.NO_CONTENT
    assert of(AuthProblem, get_identity.sync(user, client=internal)).code == "identity_not_found"


def walk() -> None:
    user, operator = create_user(), create_operator()
    first = tokens(world.BACKEND, TokenRequest(grant_type="auth", auth_id=user))
    second = refresh(user, first)
    send_and_read(user, second.access_token, operator)
    revoke(second)
    delete_user(user)


if __name__ == "__main__":
    walk()
