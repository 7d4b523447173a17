"""The 400s to requests that a document admits, each for a reason that JSON Schema cannot say, or not so that generators
understand it. `hooks.py` takes any other for a failure.

As a program it sends the example of each to the running server, so that no line stands here that the server does not
say, and none in other words.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import httpx

JSON: Final = {"content-type": "application/json"}
FORM: Final = {"content-type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True)
class Example:
    """A request that the document admits, with the body as it is sent."""

    method: str
    path: str
    body: str
    headers: dict[str, str]


def _identity(metadata: str = "{}", phone: str = "+12025550123") -> Example:
    return Example("POST", "auth/v1/identities", f'{{"id": "u-1", "phone": "{phone}", "metadata": {metadata}}}', JSON)


def _password(password: str) -> Example:
    return Example("PUT", "auth/v1/identities/u-1/password", f'{{"password": "{password}"}}', JSON)


def _form(operation: str, body: str) -> Example:
    return Example("POST", f"auth/oauth2/v1/{operation}", body, FORM)


def _described(name: str, value: str) -> Example:
    return _form("tokens", urlencode({"grant_type": "auth", "auth_id": "u-1", name: value}))


def _challenge(**parameters: str) -> Example:
    return _form("authorize-challenge", urlencode({"client_id": "app"} | parameters))


def _device(
    expiration: str = "2035-01-01T00:00:00Z", provider: str = "outbox", offset: str = "Z", language: str = "de"
) -> Example:
    body = f'{{"token": "d", "expiration": "{expiration}", "provider": "{provider}", "language": "{language}"}}'
    return Example("POST", "push/v1/pushprovider/token", body, JSON | {"barrier-user-utc-offset": offset})


def _notification(message: str = "Hello", image: str = "a.jpg") -> Example:
    body = f'{{"title": "Hello", "message": "{message}", "image": "{image}", "utcOffsets": [0]}}'
    return Example("POST", "push/v1/pushprovider/push", body, JSON)


def _to(audience: str = '{"users": ["u-1"]}', content: str = "", delivery: str = "{}") -> Example:
    """A notification to anyone. Its content is a text in English, or something else."""
    texts = '"texts": {"en": {"title": "Hello", "message": "Hello"}}'
    body = f'{{"audience": {audience}, "content": {{{content or texts}}}, "delivery": {delivery}}}'
    return Example("POST", "push/v1/pushprovider/notifications", body, JSON)


def _text(language: str, message: str = "Hello") -> str:
    return f'"{language}": {{"title": "Hello", "message": "{message}"}}'


def _texts(*texts: str, more: str = "") -> Example:
    return _to(content=f'"texts": {{{", ".join(texts)}}}{more}')


_BEGINNING: Final = {
    "response_type": "code",
    "login_hint": "+12025550123",
    "code_challenge": "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM",
    "code_challenge_method": "S256",
}

_MANY_NAMES: Final = "".join(f"{{{{a{n}}}}}" for n in range(21))

#: Lines that end so hold at the operation of their example only: elsewhere a document itself says what is required.
IS_REQUIRED: Final = " is required"

REFUSALS: Final = [
    # Which texts are phone numbers is known by the numbering plans of the countries.
    ("/body/phone is not a possible phone number in international format", _identity(phone="not a number")),
    # PostgreSQL keeps no NUL and UTF-8 has no half of a surrogate pair: said once in the description, for each string.
    (".* contains a NUL character", _identity(r'{"a": "\u0000"}')),
    (".* contains half of a surrogate pair", _identity(r'{"a": "\ud800"}')),
    (".* has a member name that contains a NUL character", _identity(r'{"\u0000": 1}')),
    (".* has a member name that contains half of a surrogate pair", _identity(r'{"\ud800": 1}')),
    # What a double does not hold: said once in the description, for each number.
    (".* is a number with more digits than are kept; send it as a string", _identity('{"a": 9007199254740993}')),
    (".* is a number out of range", _identity('{"a": 1e999}')),
    # Members and parameters that are named twice; a schema describes what was read of them.
    ("/body/metadata gives .* more than once", _identity('{"a": 1, "a": 2}')),
    (".* is given more than once", _form("introspect", "token=a&token=b")),
    # How long a value is as JSON, in UTF-8 or in a URL, and how deep.
    (r"/body/metadata is larger than \d+ bytes as JSON", _identity(f'{{"a": "{"a" * 16_384}"}}')),
    (r"/body/metadata.* is nested deeper than \d+ levels", _identity('{"a": ' * 33 + "1" + "}" * 33)),
    (r"/body/message is longer than \d+ bytes in UTF-8", _notification(message="ü" * 2_001)),
    (r"/body/image is longer than \d+ bytes in a URL", _notification(image="ü" * 255)),
    # A comparison of the body with the path.
    ("/body/id differs from the id in the path", Example("PUT", "auth/v1/identities/u-1", '{"id": "u-2"}', JSON)),
    # Ten thousand words, and what a person would type instead of one.
    ("/body/password repeats one character; .*", _password("aaaaaaaaaaaa")),
    ("/body/password is one of the most common.*", _password("password1")),
    # Whom a notification is for: generators make unusable classes of a schema that needs one of several members.
    ("/body/audience names nobody: .*", _to("{}")),
    (
        r"/body/audience/users must not have more than \d+ ids, together with exceptUsers",
        _to(json.dumps({"users": [str(n) for n in range(10_000)], "exceptUsers": ["u"]})),
    ),
    (r"/body/audience/\w+ must be absent beside personal", _to('{"personal": [{"user": "u"}], "everybody": true}')),
    (r"/body/audience/personal/\d+/user is named before", _to('{"personal": [{"user": "u"}, {"user": "u"}]}')),
    (r"/body/audience/(anyOf|except)/\d+ must have at least 1 member", _to('{"anyOf": [{"platforms": null}]}')),
    (r"/body/audience/.*/timeZones/\d+ is not a time zone \(IANA\)", _to('{"anyOf": [{"timeZones": ["Mars/Olympus"]}]}')),
    (r"/body/language is not the tag of a language \(BCP 47\), such as de-AT", _device(language="aa-variant-variant")),
    # Which languages there are, which names a text holds, and what fits beside what.
    (r".* is not a language tag \(BCP 47\) of a known language, .*", _texts(_text("jp"))),
    (r"/body/content/texts/.* is the same language as .*", _texts(_text("iw"), _text("he"), more=', "defaultLanguage": "he"')),
    (r"/body/content/texts/.*/message is longer than \d+ bytes in UTF-8", _texts(_text("en", "ü" * 2_001))),
    (r"/body/content/texts/.* holds \{\{\w+\}\}, for which only users in personal .*", _texts(_text("en", "{{name}}"))),
    (
        r"/body/audience/personal/\d+/variables/\w+ is required: user .* has no \w+",
        _to('{"personal": [{"user": "u"}]}', '"texts": {' + _text("en", "{{name}}") + "}"),
    ),
    (
        r"/body/audience/personal/\d+/variables/.* is no name: .*",
        _to('{"personal": [{"user": "u", "variables": {"a-b": "c"}}]}'),
    ),
    (r"/body/content/texts/.* holds \{\{ that begins no name: .*", _texts(_text("en", "{{a b}}"))),
    (
        r"/body/content/texts hold more than \d+ names",
        _to('{"personal": [{"user": "u"}]}', '"texts": {' + _text("en", _MANY_NAMES) + "}"),
    ),
    ("/body/content/texts is required, unless the notification is silent", _to(content='"silent": false')),
    ("/body/content/defaultLanguage is required where .*", _texts(_text("en"), _text("de"))),
    ("/body/content/defaultLanguage has no text among texts", _texts(_text("en"), more=', "defaultLanguage": "de"')),
    (r"/body/content/\w+ must be absent from a silent notification", _to(content='"silent": true, "badge": 1')),
    (r"/body/content/image is longer than \d+ bytes in a URL", _texts(_text("en"), more=f', "image": "{"ü" * 255}"')),
    ("/body/content/link is neither an https URL nor .*", _texts(_text("en"), more=', "link": "a"')),
    ("/body/content/data/.* has a name that .* keep for themselves", _texts(_text("en"), more=', "data": {"aps": "a"}')),
    ("/body/content/data/.* must have a name of 1 to 128 characters", _texts(_text("en"), more=', "data": {"": "a"}')),
    (r"/body/delivery/collapseId is longer than \d+ bytes in UTF-8", _to(delivery=f'{{"collapseId": "{"ü" * 33}"}}')),
    # Credentials in the headers and in the body: a comparison of both.
    ("/body/client_secret authenticates the client a second time; .*", _form("introspect", "token=a&client_secret=b")),
    ("/body/client_assertion authenticates the client a second time; .*", _form("revoke", "token=a&client_assertion=b")),
    # Which parameters a grant needs is in a table of the description: generators make unusable classes of it as a
    # schema. An empty parameter counts as absent (RFC 6749 section 3.2).
    (r"/body/\w+ is required for grant_type=\w+", _form("tokens", "grant_type=password")),
    ("/body/grant_type is required", _form("tokens", "grant_type=")),
    ("/body/token is required", _form("introspect", "token=")),
    # What a challenge begins with depends on what else is there, and which texts are phone numbers is known elsewhere.
    ("/body/response_type must be code", _challenge(**_BEGINNING | {"response_type": "token"})),
    ("/body/login_hint must be a phone number in international format", _challenge(**_BEGINNING | {"login_hint": "a"})),
    ("/body/code_challenge must be a SHA-256 in base64url", _challenge(**_BEGINNING | {"code_challenge": "a"})),
    ("/body/code_challenge_method must be S256", _challenge(**_BEGINNING | {"code_challenge_method": "plain"})),
    ("/body/otp must not be beside login_hint, .*", _challenge(login_hint="+12025550123", otp="123456")),
    # Only a client without a secret proves a key.
    ("/header/DPoP is missing: .*", _challenge(**_BEGINNING)),
    # What a device is called, and JSON within a form.
    ("/body/device_name must have no control characters .*", _described("device_name", "\u0007")),
    ("/body/metadata is not valid JSON", _described("metadata", "{")),
    ("/body/metadata must be a JSON object", _described("metadata", "[]")),
    (r"/body/metadata is larger than \d+ bytes", _described("metadata", f'{{"a": "{"ü" * 1_030}"}}')),
    (r"/body/metadata has more than \d+ members", _described("metadata", json.dumps({str(n): n for n in range(17)}))),
    ("/body/token is required", _form("revoke", "token=")),
    # Which days a month has, and which zones the IANA names; offsets are multiples of 15 minutes, up to 14 hours.
    ("/body/expiration is not a date-time", _device(expiration="2035-02-30T00:00:00Z")),
    ("/header/barrier-user-utc-offset is neither a UTC offset nor a time zone", _device(offset="Mars/Olympus")),
    # What the deployment has set up, and what time it is.
    ("/body/provider must be one of .*", _device(provider="apns")),
    ("/body/expiration must be a moment in the future", _device(expiration="2001-01-01T00:00:00Z")),
]

# What clients, grants, tokens, scopes, sessions and proofs there are (RFC 6749 section 5.2, RFC 9449 section 5).
_OAUTH_ERRORS: Final = {
    "invalid_client",
    "invalid_dpop_proof",
    "invalid_grant",
    "invalid_scope",
    "invalid_session",
    "invalid_token",
    "unauthorized_client",
    "unsupported_grant_type",
    "use_dpop_nonce",
}


def reasons_of(refusal: Any) -> list[str]:
    """The reasons of a 400, such as `/body/phone is not …`.

    :param refusal: its body: a problem (RFC 9457), which names all reasons, or an OAuth error, which names the first
    """
    if "error_description" in refusal:
        return [refusal["error_description"].removeprefix("The request is not valid: ").removesuffix(".")]
    return [f"{error['pointer']} {error['message']}" for error in refusal.get("errors", [])] or [str(refusal)]


def unargued(refusal: Any, path: str) -> list[str]:
    """The reasons of a 400 that are not listed here.

    :param path: the operation's, as its document has it
    """
    if refusal.get("error") in _OAUTH_ERRORS:
        return []
    patterns = [
        pattern
        for pattern, example in REFUSALS
        if not pattern.endswith(IS_REQUIRED) or example.path.endswith(path)
    ]
    return [reason for reason in reasons_of(refusal) if not any(re.fullmatch(p, reason, re.DOTALL) for p in patterns)]


def send(example: Example) -> httpx.Response:
    """Sends it with credentials that the operation takes."""
    service, path = example.path.split("/", 1)
    url = f"{os.environ[f'GATEPOST_{service.upper()}_URL']}/{path}"
    client = "backend" if path.endswith("/tokens") else "internal"
    auth = (client, os.environ[f"GATEPOST_{client.upper().replace('-', '_')}_SECRET"]) if service == "auth" else None
    token = os.environ["GATEPOST_OPERATOR_TOKEN" if path.endswith(("/push", "/notifications")) else "GATEPOST_USER_TOKEN"]
    headers = {"authorization": f"Bearer {token}"} | example.headers
    return httpx.request(example.method, url, content=example.body.encode(), headers=headers, auth=auth)


def unsaid() -> Iterator[str]:
    """Which lines the server does not say to their example, and what it says in the place of each."""
    for pattern, example in REFUSALS:
        response = send(example)
        reasons = reasons_of(response.json()) if response.status_code == 400 else []
        if not any(re.fullmatch(pattern, reason, re.DOTALL) for reason in reasons):
            yield f"{pattern}: {response.status_code} {response.text}"


if __name__ == "__main__":
    sys.exit("\n".join(unsaid()) or None)
