"""The managed policies that operators attach to the roles of people and pipelines."""

from collections.abc import Iterable, Mapping

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.queues import Queues


class CallerPolicies(Construct):
    """`arns` by name: `submitter` for everybody who sends and steers work, `operator` besides it.

    They are published, so that nobody writes them by hand: a right to invoke `api` without the
    condition below is the right of an administrator.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        prefix: str,
        api: lambda_.IFunction | None,
        queues: Queues,
    ) -> None:
        super().__init__(scope, construct_id)
        self._prefix = prefix
        submissions = queues.main["submissions"].queue_arn
        submitter = [
            iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[submissions]),
            self._reads(["api", "bus", "queues/submissions"]),
            *(call_api(api.function_arn) if api else ()),
        ]
        everything = {f"queues/{name}": queue for name, queue in queues.main.items()}
        everything |= {f"dead-letters/{name}": queue for name, queue in queues.all_dead.items()}
        operator = [
            iam.PolicyStatement(
                actions=["sqs:GetQueueAttributes"],
                resources=[queue.queue_arn for queue in everything.values()],
            ),
            self._reads([*everything, "drill", "functions/api"]),
        ]
        self.arns = {
            name: self._managed(name, statements)
            for name, statements in {"submitter": submitter, "operator": operator}.items()
        }

    def _managed(self, name: str, statements: list[iam.PolicyStatement]) -> str:
        return iam.ManagedPolicy(
            self,
            name.title(),
            description=f"What a Sluice {name} may do",
            statements=statements,
        ).managed_policy_arn

    def _reads(self, parameters: Iterable[str]) -> iam.PolicyStatement:
        stack = cdk.Stack.of(self)
        return iam.PolicyStatement(
            actions=["ssm:GetParameter"],
            resources=[
                stack.format_arn(
                    service="ssm",
                    resource="parameter",
                    resource_name=f"{self._prefix}/{name}".removeprefix("/"),
                )
                for name in parameters
            ],
        )


def call_api(arn: str) -> list[iam.PolicyStatement]:
    """Both rights that a Function URL asks for, and neither outside of it.

    A direct Invoke lets its caller write the identity in the event. Source: AWS Lambda Developer
    Guide, "Control access to Lambda function URLs".
    """
    conditions: Mapping[str, Mapping[str, Mapping[str, str]]] = {
        "lambda:InvokeFunctionUrl": {"StringEquals": {"lambda:FunctionUrlAuthType": "AWS_IAM"}},
        "lambda:InvokeFunction": {"Bool": {"lambda:InvokedViaFunctionUrl": "true"}},
    }
    return [
        iam.PolicyStatement(actions=[action], resources=[arn], conditions=condition)
        for action, condition in conditions.items()
    ]
