"""Who may use the pages: the browser that was given the one-time address, on this machine.

A page of another site must not reach the api through the user's browser. So every request must
name this host, must carry the cookie of the session, and a change must come from our own page.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest

CHANGE_HEADER = "x-sluice-ui"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass
class SessionGuard:
    """One session. `token` opens it once; then only the cookie does."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    session: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def cookie(self) -> str:
        """Its name. Browsers share cookies among the ports of a host; sessions are of one port."""
        return f"sluice-ui-{self.port}"

    @property
    def address(self) -> str:
        """The address to open in a browser, once."""
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    def refusal(self, request: HttpRequest) -> Response | None:
        """The answer to a request that must not go on; None if it may."""
        origin = f"http://127.0.0.1:{self.port}"
        if request.headers.get("host") != f"127.0.0.1:{self.port}":
            return PlainTextResponse("another host", status_code=421)
        if request.headers.get("origin", origin) != origin:
            return PlainTextResponse("another origin", status_code=403)
        if given := request.query_params.get("token"):
            return self._open(given)
        if not hmac.compare_digest(request.cookies.get(self.cookie, ""), self.session):
            return PlainTextResponse(
                "Open the address that `sluice ui` printed; it works once.", status_code=401
            )
        if request.method != "GET" and CHANGE_HEADER not in request.headers:
            return PlainTextResponse("not from the page", status_code=403)
        return None

    def _open(self, given: str) -> Response:
        if not self.token or not hmac.compare_digest(given, self.token):
            return PlainTextResponse("this address was used before", status_code=401)
        self.token = ""
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(self.cookie, self.session, httponly=True, samesite="strict")
        return answer
