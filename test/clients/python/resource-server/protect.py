from collections.abc import Callable, Iterable
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


class Unavailable(Exception):
    """Whether the token is good cannot be said at the moment."""


def protect(verify: Callable[[str], str | None], app: WSGIApplication) -> WSGIApplication:
    """Lets only requests with a good access token through, with the user's id in `gatepost.user`."""

    def protected(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        scheme, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        token = token.strip()
        try:
            user = verify(token) if scheme.lower() == "bearer" and token else None
        except Unavailable:
            start_response("503 Service Unavailable", [])
            return []
        if user is None:
            start_response("401 Unauthorized", [("WWW-Authenticate", "Bearer")])
            return []
        environ["gatepost.user"] = user
        return app(environ, start_response)

    return protected
