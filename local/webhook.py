"""The API server's token webhook: who an EKS token stands for, and in which groups.

    python -m local.webhook --port 6666 --aws URL --cluster batch-1 --region us-east-1

EKS does this inside AWS. A token is a presigned GetCallerIdentity call; whoever can have STS
answer it is the principal that signed it. The call is replayed against the embedded STS, and only
there, and the role is looked up among the cluster's access entries.
"""

import argparse
import base64
import binascii
import os
import re
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from typing import Any
from xml.etree import ElementTree as ET

import boto3
from botocore.exceptions import ClientError

from local.json_answers import JsonHandler

Json = dict[str, Any]

PREFIX = "k8s-aws-v1."
LIFETIME = timedelta(minutes=15)  # EKS honours a token for 15 minutes from its date
CLOCK_SKEW = timedelta(minutes=5)
STS_HOST = re.compile(r"sts(\.[a-z0-9-]+)?\.amazonaws\.com")
# What a token may say; anything else could make STS do something other than identify the caller.
PARAMETERS = {
    "action", "version", "x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-expires",
    "x-amz-security-token", "x-amz-signature", "x-amz-signedheaders", "x-amz-user-agent",
}  # fmt: skip
ASSUMED_ROLE = re.compile(r"arn:aws:sts::(\d{12}):assumed-role/([^/]+)/(.+)")


class TokenRefusedError(Exception):
    """The token does not prove who sends it; the message says why."""


@dataclass(frozen=True)
class SignedCall:
    """A presigned GetCallerIdentity call taken from a token."""

    host: str
    query: str

    @classmethod
    def from_token(cls, token: str, now: datetime, aws: str) -> "SignedCall":
        """Raises TokenRefusedError for anything but a call that STS alone can answer.

        STS is where AWS has it, or at `aws`, the address of the embedded one.
        """
        if not token.startswith(PREFIX):
            raise TokenRefusedError(f"not a token of EKS: it does not start with {PREFIX}")
        encoded = token.removeprefix(PREFIX)
        try:
            url = urllib.parse.urlsplit(
                base64.b64decode(
                    encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True
                ).decode()
            )
        except (binascii.Error, UnicodeDecodeError, ValueError) as error:
            raise TokenRefusedError("not the base64 of a URL") from error
        genuine = url.scheme == "https" and STS_HOST.fullmatch(url.netloc)
        embedded = f"{url.scheme}://{url.netloc}" == aws
        if not (genuine or embedded) or url.path != "/":
            raise TokenRefusedError("signed for another address than that of STS")
        query = urllib.parse.parse_qs(url.query)
        lower = {key.lower(): values for key, values in query.items()}
        if len(lower) != len(query) or any(len(values) > 1 for values in lower.values()):
            raise TokenRefusedError("a parameter is given twice")
        if unknown := lower.keys() - PARAMETERS:
            raise TokenRefusedError(f"unknown parameter {min(unknown)}")
        if lower.get("action") != ["GetCallerIdentity"]:
            raise TokenRefusedError("signed for another action than GetCallerIdentity")
        if "x-k8s-aws-id" not in lower.get("x-amz-signedheaders", [""])[0].split(";"):
            raise TokenRefusedError("the cluster's name is not among the signed headers")
        try:
            signed_at = datetime.strptime(
                lower.get("x-amz-date", [""])[0], "%Y%m%dT%H%M%SZ"
            ).replace(tzinfo=UTC)
        except ValueError as error:
            raise TokenRefusedError("no date of signature") from error
        if not signed_at - CLOCK_SKEW <= now < signed_at + LIFETIME:
            raise TokenRefusedError(f"expired: signed at {signed_at:%H:%M:%S}, good for 15 minutes")
        return cls(url.netloc, url.query)


def principal_of(caller_arn: str) -> str:
    """The IAM ARN that access entries name, for the ARN with which STS names a caller.

    A role's path is missing in both, as on EKS.
    """
    if match := ASSUMED_ROLE.fullmatch(caller_arn):
        return f"arn:aws:iam::{match[1]}:role/{match[2]}"
    return caller_arn


@dataclass(frozen=True)
class Webhook:
    """Authenticates tokens of one cluster against one embedded AWS."""

    aws: str
    cluster: str
    entries: Callable[[str], Iterable[Json]]
    """The access entries of a principal."""

    def review(self, token: str, now: datetime) -> Json:
        """The `status` of a TokenReview. Raises TokenRefusedError."""
        call = SignedCall.from_token(token, now, self.aws)
        arn, user_id, account = self.identify(call)
        principal = principal_of(arn)
        for entry in self.entries(principal):
            extra = {"arn": [arn], "canonicalArn": [principal], "accountId": [account]}
            return {
                "authenticated": True,
                "user": {
                    "username": entry["username"] or arn,
                    "uid": f"aws-iam-authenticator:{account}:{user_id}",
                    "groups": entry["kubernetesGroups"],
                    "extra": extra,
                },
            }
        raise TokenRefusedError(f"no access entry of {self.cluster} for {principal}")

    def identify(self, call: SignedCall) -> tuple[str, str, str]:
        """ARN, user id and account of the signer, as STS sees them."""
        headers = {"Host": call.host, "x-k8s-aws-id": self.cluster}
        request = urllib.request.Request(f"{self.aws}/?{call.query}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                document = ET.fromstring(answer.read())  # noqa: S314 - from our own emulator
        except urllib.error.HTTPError as error:
            raise TokenRefusedError(f"STS answers {error.code}: {error.read().decode()}") from error
        values = {element.tag.rpartition("}")[2]: element.text or "" for element in document.iter()}
        return values["Arn"], values["UserId"], values["Account"]


def without_path(role_arn: str) -> str:
    """The role's ARN as an assumed role shows it: without the path."""
    head, separator, path = role_arn.partition(":role/")
    return f"{head}{separator}{path.rsplit('/', 1)[-1]}" if separator else role_arn


def of_principal(entries: Iterable[Json], principal: str) -> list[Json]:
    return [entry for entry in entries if without_path(entry["principalArn"]) == principal]


class AccessEntries:
    """The cluster's access entries, kept for as long as the API server keeps an answer.

    An unknown principal is looked for again, since it may have been entered just now.
    """

    KEPT_SECONDS, MISSED_SECONDS = 10.0, 1.0

    def __init__(self, aws: str, cluster: str, region: str) -> None:
        self.eks = boto3.client("eks", endpoint_url=aws, region_name=region)
        self.cluster = cluster
        self.lock = threading.Lock()
        self.asked = -self.KEPT_SECONDS
        self.known: list[Json] = []

    def __call__(self, principal: str) -> list[Json]:
        with self.lock:
            for kept in (self.KEPT_SECONDS, self.MISSED_SECONDS):
                if time.monotonic() - self.asked > kept:
                    self.asked, self.known = time.monotonic(), self.describe()
                if found := of_principal(self.known, principal):
                    return found
            return []

    def describe(self) -> list[Json]:
        names = self.eks.list_access_entries(clusterName=self.cluster)["accessEntries"]
        return [
            dict(
                self.eks.describe_access_entry(clusterName=self.cluster, principalArn=name)[
                    "accessEntry"
                ]
            )
            for name in names
        ]


def handler(webhook: Webhook) -> type[JsonHandler]:
    class Handler(JsonHandler):
        def do_GET(self) -> None:
            self.answer(200, {"status": "ok"})

        def do_POST(self) -> None:
            review = self.document()
            try:
                status = webhook.review(review["spec"]["token"], datetime.now(UTC))
            except (TokenRefusedError, ClientError, OSError) as error:
                print(f"refused: {error}", file=sys.stderr, flush=True)
                status = {"authenticated": False, "error": str(error)}
            self.answer(200, {**review, "status": status})

    return Handler


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--aws", required=True, help="MiniStack's address")
    options.add_argument("--cluster", required=True)
    options.add_argument("--region", required=True)
    chosen = options.parse_args()
    if "AWS_ACCESS_KEY_ID" not in os.environ:
        sys.exit("The webhook needs the embedded AWS's keys in its environment.")
    entries = AccessEntries(chosen.aws, chosen.cluster, chosen.region)
    webhook = Webhook(chosen.aws, chosen.cluster, entries)
    ThreadingHTTPServer(("127.0.0.1", chosen.port), handler(webhook)).serve_forever()


if __name__ == "__main__":
    main()
