"""What Schemathesis would have to know beside the documents."""

from typing import Any
from urllib.parse import unquote

import schemathesis
from refusals import unargued
from schemathesis import Case
from schemathesis.core.transport import Response


@schemathesis.check
def refusals_are_argued(ctx: schemathesis.CheckContext, response: Response, case: Case[Any]) -> None:
    """A request that a document admits is refused with 400 only for a reason that `refusals.py` lists."""
    if response.status_code != 400 or case.meta is None or not case.meta.generation.mode.is_positive:
        return
    reasons = unargued(response.json(), case.operation.path)
    assert not reasons, f"The document admits this request: {reasons}"


@schemathesis.hook
def filter_query(ctx: schemathesis.HookContext, query: dict[str, object] | None) -> bool:
    """Keeps URLs below the limit of HTTP servers: beyond it the answer is 431, of no operation in particular."""
    return len(repr(query)) < 2_000


@schemathesis.hook
def filter_path_parameters(ctx: schemathesis.HookContext, path_parameters: dict[str, object] | None) -> bool:
    """Schemathesis decodes what looks percent-encoded before it encodes: of the id `%F8` it sends another one."""
    return all(unquote(text) == text for text in (path_parameters or {}).values() if isinstance(text, str))
