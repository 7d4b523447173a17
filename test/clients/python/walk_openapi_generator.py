"""Walks through both services with the clients of openapi-generator's `python`."""

from datetime import UTC, datetime, timedelta

import auth_openapi as auth
import push_openapi as push
import world


def as_client(client: tuple[str, str]) -> auth.ApiClient:
    username, password = client
    configuration = auth.Configuration(host=world.AUTH_URL, username=username, password=password)
    return auth.ApiClient(configuration)


def as_user(token: str) -> push.ApiClient:
    return push.ApiClient(push.Configuration(host=world.PUSH_URL, access_token=token))


identities = auth.IdentitiesApi(as_client(world.INTERNAL))
api = auth.OAuthApi(as_client(world.API))
backend = auth.OAuthApi(as_client(world.BACKEND))
backoffice = auth.OAuthApi(as_client(world.BACKOFFICE))


def create_user() -> str:
    user, phone = world.new_id("generator"), world.new_phone()
    created = identities.create_identity(auth.IdentityCreation(id=user, phone=phone))
    assert (created.id, created.phone) == (user, phone)
    assert identities.find_identity_by_phone(phone).id == user
    identities.update_identity(user, auth.IdentityChange(email=f"{user}@example.com"))
    assert identities.get_identity(user).email == f"{user}@example.com"
    try:
        identities.create_identity(auth.IdentityCreation(id=user, phone=phone))
    except auth.ApiException as error:
        assert error.status == 409 and error.data.code == "identity_id_taken"
    else:
        raise AssertionError("the identity was created twice")
    return user


def create_operator() -> push.ApiClient:
    """Somebody who may send notifications."""
    user, password = world.new_id("generator-operator"), world.new_id("password")
    identities.create_identity(auth.IdentityCreation(id=user, phone=world.new_phone()))
    identities.set_identity_password(user, auth.IdentityPassword(password=password))
    pair = backoffice.generate_tokens("password", username=user, password=password)
    return as_user(pair.access_token)


def send_and_read(user: str, app: push.ApiClient, operator: push.ApiClient) -> None:
    device = world.new_id("device")
    expiration = (datetime.now(UTC) + timedelta(days=365)).isoformat()
    token = push.PushToken(token=device, expiration=expiration)
    push.DevicesApi(app).save_push_token(token, barrier_user_utc_offset="+05:30")
    title = world.new_id("Hello")
    notification = push.PushNotification(title=title, message="From Python", utcOffsets=[330])
    sent = push.SendingApi(operator).send_push_notification_with_http_info(notification)
    assert sent.headers is not None

    def arrived() -> bool:
        page = push.HistoryApi(app).get_notifications_history(mark_viewed=True, size=50)
        entries = [entry for entry in page.content if entry.notification.title == title]
        return [entry.user_id for entry in entries] == [user]

    world.eventually("the notification is in the history", arrived)
    notification_id = sent.headers["Notification-Id"]
    assert push.OperationApi(operator).get_notification(notification_id).title == title

    content = push.NotificationTexts(
        texts={"en": push.NotificationText(title="On its way", message="It comes tomorrow.")},
        link="https://shop.example.com/orders/4711",
        data={"orderId": "4711"},
    )
    creation = push.NotificationCreation(audience=push.Audience(users=[user]), content=content)
    created = push.SendingApi(operator).create_notification(creation)
    assert created.warnings == []
    entry = push.HistoryApi(app).get_notifications_history().content[0]
    assert entry.id == created.id and entry.link == content.link and entry.data == content.data
    push.DevicesApi(app).delete_push_token(push_token_reference=push.PushTokenReference(token=device))


def walk() -> None:
    user, operator = create_user(), create_operator()
    first = backend.generate_tokens("auth", auth_id=user)
    active = api.introspect_token(first.access_token)
    assert active.active and active.sub == user and active.client_id == "backend"
    assert active.user_info is not None and active.user_info.user_id == user
    inactive = api.introspect_token("garbage")
    assert not inactive.active and inactive.sub is None
    second = backend.generate_tokens("refresh_token", refresh_token=first.refresh_token)
    assert second.refresh_token != first.refresh_token
    send_and_read(user, as_user(second.access_token), operator)
    assert backend.revoke_token(second.refresh_token).message
    assert not api.introspect_token(second.access_token).active
    identities.delete_identity(user)


if __name__ == "__main__":
    walk()
