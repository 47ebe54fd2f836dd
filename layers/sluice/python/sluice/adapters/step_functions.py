"""Ends tasks of AWS Step Functions that wait for their token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from sluice.core.lifecycle.completion import Success

if TYPE_CHECKING:
    from sluice.core.lifecycle.completion import Answer

# The task has ended, was given up, or never was.
ANSWERS = frozenset({"TaskTimedOut", "TaskDoesNotExist", "InvalidToken"})


@dataclass(frozen=True)
class StepFunctions:
    client: Any  # boto3's `stepfunctions`

    def answer(self, token: str, answer: Answer) -> str:
        try:
            if isinstance(answer, Success):
                self.client.send_task_success(taskToken=token, output=answer.output)
            else:
                self.client.send_task_failure(
                    taskToken=token, error=answer.error, cause=answer.cause
                )
        except ClientError as error:
            code = error.response["Error"]["Code"].removesuffix("Exception")
            if code in ANSWERS:
                return code
            raise
        return ""
