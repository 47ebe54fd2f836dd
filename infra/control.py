"""What may be replaced at any time: queues, bus, Lambdas, and what starts them."""

from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from constructs import Construct
from sluice import environment
from sluice.configuration import Configuration
from sluice.message_queues import BY_NAME, QUEUES

from infra import code
from infra.drills import Drills
from infra.function import SluiceFunction
from infra.functions import FUNCTIONS, FunctionShape
from infra.policies import CallerPolicies
from infra.published import Published
from infra.queues import Queues, restrict_senders
from infra.rules import accept_submissions, hear_answers, hear_of_ends, hear_of_machines
from infra.schedules import Schedules
from infra.sources import consume_queue, follow_stream
from infra.state import StateStack

_BATCH = 10
_DEAD_LETTER_ACTIONS = (
    "GetQueueAttributes",
    "ReceiveMessage",
    "ChangeMessageVisibility",
    "DeleteMessage",
    "PurgeQueue",
)


class ControlStack(cdk.Stack):
    """The machine around the state; `functions` by name, `queues`, `bus`."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        configuration: Configuration,
        state: StateStack,
        **options: Any,
    ) -> None:
        super().__init__(scope, construct_id, **options)
        self._configuration, self._state = configuration, state
        self.queues = Queues(self, "Queues")
        self.bus = events.EventBus(
            self,
            "Bus",
            # Fixed, since users name it in their own code and it holds nothing.
            event_bus_name=configuration.name,
            description="Sluice: submissions and lifecycle",
        )
        self.functions = self._functions()
        for shape in FUNCTIONS:
            self._grant_data(shape)
            self._grant_calls(shape)
        self._start_functions()
        self._drills = (
            Drills(self, "Drills", name=configuration.name) if configuration.drills else None
        )
        api = self.functions.get("api")
        self._policies = CallerPolicies(
            self,
            "Policies",
            prefix=configuration.parameter_prefix,
            api=api.function if api else None,
            queues=self.queues,
        )
        self._publish()

    def _functions(self) -> dict[str, SluiceFunction]:
        runtime = self._configuration.runtime
        layers = [
            self._layer("SluiceLayer", code.sluice_layer(runtime)),
            self._layer("ThirdPartyLayer", code.third_party_layer(runtime)),
        ]
        handlers = code.handlers(runtime)
        functions: dict[str, SluiceFunction] = {}
        # A function that others invoke comes before them, since they must know its name.
        for shape in sorted(FUNCTIONS, key=lambda shape: len(shape.invokes)):
            functions[shape.name] = SluiceFunction(
                self,
                shape.name.title(),
                shape=shape,
                configuration=self._configuration,
                code=handlers,
                layers=layers,
                environment=self._environment(shape, functions),
            )
        return functions

    def _layer(self, construct_id: str, content: lambda_.Code) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(self, construct_id, code=content)

    def _environment(
        self, shape: FunctionShape, functions: dict[str, SluiceFunction]
    ) -> dict[str, str]:
        tables = {name.partition("/")[0] for name in shape.tables}
        return (
            {
                environment.table_name(name): self._state.tables[name].table_name
                for name in sorted(tables)
            }
            | {
                environment.queue_url(name): self.queues.main[name].queue_url
                for name in sorted({*shape.sends, *shape.inspects})
            }
            | (
                {
                    environment.DEAD_LETTERS: ",".join(
                        f"{name}={queue.queue_name}" for name, queue in self.queues.all_dead.items()
                    )
                }
                if shape.empties_dead_letters
                else {}
            )
            | {
                environment.function_name(name): functions[name].function.function_name
                for name in shape.invokes
            }
            | (
                {environment.BUCKET: self._state.bucket.bucket_name}
                if shape.objects or shape.lists
                else {}
            )
            | (self._bus_settings() if shape.publishes_events else {})
            | (
                {environment.EVENTS_QUEUE: self.queues.main["events"].queue_name}
                if BY_NAME["events"].consumer == shape.name
                else {}
            )
            | (
                {environment.INTERRUPTIONS_QUEUE: self.queues.main["interruptions"].queue_name}
                if BY_NAME["interruptions"].consumer == shape.name
                else {}
            )
        )

    def _bus_settings(self) -> dict[str, str]:
        omitted = ",".join(self._configuration.events.omit)
        return {environment.BUS_NAME: self.bus.event_bus_name} | (
            {environment.EVENTS_OMITTED: omitted} if omitted else {}
        )

    def _grant_data(self, shape: FunctionShape) -> None:
        function = self.functions[shape.name]
        for name, actions in shape.tables.items():
            table, _, index = name.partition("/")
            arn = self._state.tables[table].table_arn
            function.allow("dynamodb", actions, f"{arn}/index/{index}" if index else arn)
        for prefix, actions in shape.objects.items():
            function.allow_objects(actions, self._state.bucket.arn_for_objects(f"{prefix}*"))
        for prefix in shape.lists:
            function.allow_listing(self._state.bucket.bucket_arn, prefix)
        if shape.fetches_references:
            for bucket in self._configuration.submissions.manifest_buckets:
                # Not the stack's own partition, which a set Region makes another word: findings
                # are acknowledged by the words of a resource.
                function.allow_objects(["GetObject"], f"arn:{cdk.Aws.PARTITION}:s3:::{bucket}/*")

    def _grant_calls(self, shape: FunctionShape) -> None:
        function = self.functions[shape.name]
        for name in shape.sends:
            function.allow("sqs", ["SendMessage"], self.queues.main[name].queue_arn)
        for name in shape.inspects:
            function.allow("sqs", ["GetQueueAttributes"], self.queues.main[name].queue_arn)
        if shape.empties_dead_letters:
            function.allow(
                "sqs",
                _DEAD_LETTER_ACTIONS,
                *(queue.queue_arn for queue in self.queues.all_dead.values()),
            )
        if shape.answers_tasks:
            function.allow_answering_tasks()
        if shape.reads_ec2:
            function.allow_reading_ec2()
        secrets = {c.cedana.token_secret for c in self._configuration.clusters if c.cedana}
        if shape.asks_cedana and secrets:
            function.allow("secretsmanager", ["GetSecretValue"], *sorted(secrets))
        for name in shape.invokes:
            function.allow("lambda", ["InvokeFunction"], self.functions[name].function.function_arn)
        if shape.publishes_events:
            function.allow("events", ["PutEvents"], self.bus.event_bus_arn)
        if shape.cluster_group and self._configuration.clusters:
            function.allow(
                "eks",
                ["DescribeCluster"],
                *(
                    self.format_arn(service="eks", resource="cluster", resource_name=cluster.name)
                    for cluster in self._configuration.clusters
                ),
            )

    def _start_functions(self) -> None:
        queues, functions = self.queues, self.functions
        restrict_senders(queues.main["submissions"], submissions=self._configuration.submissions)
        for queue in QUEUES:
            consume_queue(
                functions[queue.consumer],
                queues.main[queue.name],
                name=queue.name.title(),
                batch_size=_BATCH,
                window_seconds=queue.window_seconds,
            )
        follow_stream(
            functions["relay"],
            self._state.tables["Workloads"],
            failures=queues.last_resorts["failures"],
        )
        accept_submissions(self, bus=self.bus, queues=queues)
        hear_of_machines(self, queues=queues)
        hear_answers(self, bus=self.bus, queues=queues)
        hear_of_ends(self, bus=self.bus, queues=queues)
        schedules = Schedules(
            self,
            "Schedules",
            failures=queues.last_resorts["failures"],
            undelivered=queues.last_resorts["undelivered"],
        )
        clusters = [{"cluster": cluster.name} for cluster in self._configuration.clusters]
        for name, inputs in (("sweep", [{}]), ("provision", clusters), ("observe", clusters)):
            schedules.every_minute(functions[name], inputs=inputs)

    def _publish(self) -> None:
        Published(
            self,
            prefix=self._configuration.parameter_prefix,
            values={
                **{f"queues/{name}": queue.queue_url for name, queue in self.queues.main.items()},
                **{
                    f"dead-letters/{name}": queue.queue_url
                    for name, queue in self.queues.all_dead.items()
                },
                **{
                    f"functions/{name}": function.function.function_name
                    for name, function in self.functions.items()
                },
                **{f"policies/{name}": arn for name, arn in self._policies.arns.items()},
                "bus": self.bus.event_bus_name,
                **self._api_address(),
                **({"drill": self._drills.template.attr_id} if self._drills else {}),
            },
        )

    def _api_address(self) -> dict[str, str]:
        url = self.functions["api"].function.add_function_url(
            auth_type=lambda_.FunctionUrlAuthType.AWS_IAM
        )
        return {"api": url.url}
