"""Recognizes the answers of AWS that mean: this role may not do that."""

from __future__ import annotations

from botocore.exceptions import ClientError

CODES = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError"}


def refusal(error: BaseException) -> str | None:
    """AWS's own words, which name role, action and resource; None for any other error."""
    if not isinstance(error, ClientError) or error.response["Error"]["Code"] not in CODES:
        return None
    return f"{error.operation_name}: {error.response['Error']['Message']}"
