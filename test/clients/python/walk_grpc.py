"""Calls both gRPC services with grpcio."""

from collections.abc import Callable

import grpc
import httpx

import world
from auth.v1.introspection_pb2 import IntrospectRequest
from auth.v1.introspection_pb2_grpc import IntrospectionServiceStub
from push.v1.delivery_pb2 import NOTIFICATION_STATE_COMPLETED, WatchProgressRequest
from push.v1.delivery_pb2_grpc import DeliveryServiceStub
from push.v1.notifications_pb2 import Audience, CreateNotificationRequest, NotificationText, NotificationTexts
from push.v1.notifications_pb2_grpc import NotificationServiceStub

channel = grpc.insecure_channel(world.GRPC_ADDRESS)
introspection = IntrospectionServiceStub(channel)
delivery = DeliveryServiceStub(channel)
notifications = NotificationServiceStub(channel)


def fails(code: grpc.StatusCode, call: Callable[[], object]) -> None:
    try:
        answer = call()
    except grpc.RpcError as error:
        assert error.code() is code, error
    else:
        raise AssertionError(answer)


def create_operator() -> tuple[str, str]:
    """Somebody who may send notifications, and an access token of theirs."""
    user, password = world.new_id("grpc"), world.new_id("password")
    auth = httpx.Client(base_url=world.AUTH_URL, auth=world.INTERNAL, timeout=30)
    auth.post("/v1/identities", json={"id": user, "phone": world.new_phone()}).raise_for_status()
    auth.put(f"/v1/identities/{user}/password", json={"password": password}).raise_for_status()
    form = {"grant_type": "password", "username": user, "password": password}
    answer = auth.post("/oauth2/v1/tokens", data=form, auth=world.BACKOFFICE).raise_for_status()
    token: str = answer.json()["access_token"]
    return user, token


def walk() -> None:
    user, token = create_operator()
    api = (("authorization", f"Basic {world.basic(world.API)}"),)
    active = introspection.Introspect(IntrospectRequest(token=token), metadata=api)
    assert active.active and active.sub == active.user_info.user_id == user
    assert active.client_id == "backoffice" and active.token_type == "Bearer"
    inactive = introspection.Introspect(IntrospectRequest(token="garbage"), metadata=api)
    assert inactive.ByteSize() == 0, inactive
    missing, reference = IntrospectRequest(), IntrospectRequest(token=token)
    fails(grpc.StatusCode.INTERNAL, lambda: introspection.Introspect(missing, metadata=api))
    wrong = (("authorization", f"Basic {world.basic(('api', 'wrong'))}"),)
    fails(grpc.StatusCode.UNAUTHENTICATED, lambda: introspection.Introspect(reference, metadata=wrong))

    bearer = (("authorization", f"Bearer {token}"),)
    text = NotificationText(title="On its way", message="It comes tomorrow.")
    content = NotificationTexts(texts={"en": text}, data={"orderId": "4711"})
    to_user = CreateNotificationRequest(audience=Audience(users=[user]), content=content)
    created = notifications.CreateNotification(to_user, metadata=bearer)
    *_, ended = delivery.WatchProgress(WatchProgressRequest(notification_id=created.id), metadata=bearer)
    assert ended.progress.title == "On its way"
    to_nobody = CreateNotificationRequest(content=content)
    fails(
        grpc.StatusCode.INVALID_ARGUMENT,
        lambda: notifications.CreateNotification(to_nobody, metadata=bearer),
    )

    title = world.new_id("Hello")
    sent = httpx.post(
        f"{world.PUSH_URL}/v1/pushprovider/push",
        json={"title": title, "message": "From Python", "utcOffsets": [-720]},
        headers=dict(bearer),
    ).raise_for_status()
    watched = WatchProgressRequest(notification_id=sent.headers["Notification-Id"])
    *_, last = delivery.WatchProgress(watched, metadata=bearer)
    assert last.progress.id == watched.notification_id and last.progress.title == title
    assert last.progress.state == NOTIFICATION_STATE_COMPLETED and last.progress.remaining == 0
    nobody = WatchProgressRequest(notification_id="not-an-id")
    fails(grpc.StatusCode.INVALID_ARGUMENT, lambda: list(delivery.WatchProgress(nobody, metadata=bearer)))


if __name__ == "__main__":
    walk()
