"""The AWS clients of a command, made from settings; imported only by commands that call AWS."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from sluice.client.errors import (
    ControlPlaneUnavailableError,
    NotDeployedError,
    PermissionDeniedError,
    SluiceClientError,
)
from sluice.client.settings import ClientSettings, Setting
from sluice.client.transport import FunctionUrl

if TYPE_CHECKING:
    from botocore.session import Session

DENIED_CODES = {"AccessDenied", "AccessDeniedException", "UnrecognizedClientException"}
DENIED_CODES |= {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId"}
SERVER_FAULT = 500
MISSING_CODES = {"ParameterNotFound"}


class Aws:
    """One session; clients and credentials as the settings say."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings

    @cached_property
    def session(self) -> Session:
        import botocore.session  # noqa: PLC0415 - slower than all the rest of a command

        session = botocore.session.Session(profile=self.settings.profile.value or None)
        if keys := self.settings.keys:
            session.set_credentials(keys.access_key, keys.secret_key)
        return session

    @cached_property
    def region(self) -> str:
        region = self.settings.region.value or self.session.get_config_variable("region")
        if not region:
            raise SluiceClientError(
                "no AWS Region is set",
                hint="set AWS_REGION, `region` in sluice.yaml, or a Region in your AWS profile",
            )
        return str(region)

    def client(self, service: str) -> Any:
        return self.session.create_client(
            service,
            region_name=self.region,
            endpoint_url=self.settings.endpoint_url.value or None,
        )

    def published(self, parameter: str) -> Setting:
        """A name that the stacks publish. Raises NotDeployedError if they have not."""
        if known := self.settings.published.get(parameter):
            return known
        path = f"/{self.settings.name.value}/{parameter}"
        try:
            answer = self.client("ssm").get_parameter(Name=path)
        except ClientError as error:
            if error.response["Error"]["Code"] in MISSING_CODES:
                raise NotDeployedError(
                    f"no Sluice named {self.settings.name.value!r} is deployed in {self.region}: "
                    f"the SSM parameter {path} does not exist",
                    hint="start the embedded stack (`sluice local up`), deploy (`make deploy`), "
                    "or name it in sluice.yaml",
                ) from error
            raise from_aws(error) from error
        except BotoCoreError as error:
            raise from_aws(error) from error
        return Setting(str(answer["Parameter"]["Value"]), f"SSM parameter {path}")

    def _credentials(self) -> Any:
        """Keys of the embedded stack, else what the boto3 chain finds; None if it finds none."""
        if keys := self.settings.keys:
            from botocore.credentials import Credentials  # noqa: PLC0415 - a verb pays only for what it uses

            return Credentials(keys.access_key, keys.secret_key)
        return self.session.get_credentials()

    def transport(self) -> FunctionUrl:
        """The way to the api. Raises PermissionDeniedError without credentials."""
        credentials = self._credentials()
        if credentials is None:
            raise PermissionDeniedError(
                "no AWS credentials found",
                hint=f"the embedded stack of {silent} does not answer; `sluice local up` starts it"
                if (silent := self.settings.silent_stack)
                else "log in (`aws sso login`, `aws configure`), name a profile with --profile, or "
                "start the embedded stack (`sluice local up`)",
            )
        url = reachable(self.published("api").value, self.settings.endpoint_url.value)
        return FunctionUrl(url, self.region, credentials)


def reachable(function_url: str, endpoint_url: str) -> str:
    """The address under which a Function URL answers; an emulator serves it below its own."""
    host = urlsplit(function_url).hostname or ""
    if endpoint_url and host.endswith(".on.aws"):
        return f"{endpoint_url.rstrip('/')}/_aws/lambda-url/{host.split('.')[0]}"
    return function_url.rstrip("/")


def from_aws(error: ClientError | BotoCoreError) -> SluiceClientError:
    """The SluiceClientError for an error of AWS, with the matching exit code."""
    if isinstance(error, ClientError):
        code = error.response.get("Error", {}).get("Code", "")
        if code in DENIED_CODES:
            return PermissionDeniedError(
                str(error), hint="check with `aws sts get-caller-identity`"
            )
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if status >= SERVER_FAULT or "Throttl" in code:
            return ControlPlaneUnavailableError(str(error), hint="try again")
        return SluiceClientError(str(error))
    if type(error).__name__ in {"NoCredentialsError", "CredentialRetrievalError"}:
        return PermissionDeniedError(str(error), hint="log in, or name a profile with --profile")
    return ControlPlaneUnavailableError(str(error), hint="`sluice config show` names the address")
