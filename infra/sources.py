"""Event source mappings: how queues and the stream start Lambdas."""

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as event_sources
from aws_cdk import aws_sqs as sqs

from infra.function import SluiceFunction


def consume_queue(
    target: SluiceFunction,
    queue: sqs.IQueue,
    *,
    name: str,
    batch_size: int,
    window_seconds: int | None = None,
) -> None:
    """Start the function for up to `batch_size` messages; it reports each failed one.

    With a window it waits so long for more of them.
    """
    window = None if window_seconds is None else cdk.Duration.seconds(window_seconds)
    target.allow("sqs", ["ReceiveMessage", "DeleteMessage", "GetQueueAttributes"], queue.queue_arn)
    mapping = lambda_.EventSourceMapping(
        target,
        f"From{name}",
        target=target.function,
        event_source_arn=queue.queue_arn,
        batch_size=batch_size,
        max_batching_window=window,
        report_batch_item_failures=True,
    )
    _after_rights(mapping, target)


def follow_stream(target: SluiceFunction, table: dynamodb.TableV2, *, failures: sqs.IQueue) -> None:
    """Start the function for every change of the table, in order for each item.

    A record that keeps failing must not block its shard: it is split off, tried for a quarter of
    an hour and then reported to `failures`; the sweep repairs what it would have caused.
    """
    stream = table.table_stream_arn
    if stream is None:
        raise ValueError(f"{table.node.path} has no stream")
    target.allow(
        "dynamodb", ["DescribeStream", "GetRecords", "GetShardIterator", "ListStreams"], stream
    )
    target.allow("sqs", ["SendMessage"], failures.queue_arn)
    mapping = lambda_.EventSourceMapping(
        target,
        "FromStream",
        target=target.function,
        event_source_arn=stream,
        starting_position=lambda_.StartingPosition.TRIM_HORIZON,
        batch_size=100,
        parallelization_factor=4,
        bisect_batch_on_error=True,
        retry_attempts=20,
        max_record_age=cdk.Duration.minutes(15),
        report_batch_item_failures=True,
        on_failure=event_sources.SqsDlq(failures),
    )
    _after_rights(mapping, target)


def _after_rights(mapping: lambda_.EventSourceMapping, target: SluiceFunction) -> None:
    """Lambda checks the role when a mapping is created, not when it first polls."""
    mapping.node.add_dependency(target.role)
