"""What Schemathesis would have to know beside the documents.

A request that a document admits may be refused with 400 only for a reason that JSON Schema cannot say. `ARGUED` lists
them all, as the answers name them. Any other refusal is a failure.
"""

import re
from typing import Any, Final

import schemathesis
from schemathesis import Case
from schemathesis.core.transport import Response

ARGUED: Final = re.compile(
    "|".join(
        [
            # Which texts are phone numbers is known by the numbering plans of the countries.
            "/body/phone is not a possible phone number in international format",
            # PostgreSQL keeps no NUL and UTF-8 has no lone surrogates: said once in the description, for each string.
            "contains a (NUL character|lone surrogate)|has a member name that contains a (NUL character|lone surrogate)",
            # A form that names a parameter twice; a schema describes what was read of it.
            "is given more than once",
            # A comparison of the body with the path.
            "/body/id differs from the id in the path",
            # How long a value is as JSON, or in UTF-8, and how deep.
            r"/body/metadata is larger than \d+ bytes as JSON",
            r"/body/metadata is nested deeper than \d+ levels",
            r"/body/message is longer than \d+ bytes in UTF-8",
            # Ten thousand words, and what a person would type instead of one.
            "/body/password (repeats one character|is one of the most common)",
            # Credentials in the header and in the body: a comparison of both.
            "/body/client_(id|secret|assertion) (authenticates the client a second time|differs from)",
            # Which parameters a grant needs is in a table of the description: generators make unusable classes of it
            # as a schema. An empty parameter counts as absent (RFC 6749 section 3.2).
            r"/body/\w+ is required( for grant_type=\w+)?",
            # What clients, grants, tokens and scopes there are (RFC 6749 section 5.2).
            '"error":"(invalid_(grant|client|token|scope)|unauthorized_client|unsupported_grant_type)"',
            # Which days a month has, and which zones the IANA names; offsets are multiples of 15 minutes, up to 14 hours.
            "/body/expiration is not a date-time",
            "/header/barrier-user-utc-offset is neither a UTC offset nor a time zone",
            # What the deployment has set up, and what time it is.
            "/body/provider must be one of",
            "/body/expiration must be a moment in the future",
        ]
    )
)


@schemathesis.check
def refusals_are_argued(ctx: schemathesis.CheckContext, response: Response, case: Case[Any]) -> None:
    if response.status_code != 400 or case.meta is None or not case.meta.generation.mode.is_positive:
        return
    assert ARGUED.search(response.text), f"The document admits this request: {response.text}"


@schemathesis.hook
def filter_query(ctx: schemathesis.HookContext, query: dict[str, object] | None) -> bool:
    """Keeps URLs below the limit of HTTP servers: beyond it the answer is 431, of no operation in particular."""
    return len(repr(query)) < 2_000
