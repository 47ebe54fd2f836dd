"""What outlives every deployment: the tables and the bucket."""

from dataclasses import dataclass
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct
from sluice.configuration import Configuration, StateSettings

from infra.published import Published

_STRING = dynamodb.AttributeType.STRING


@dataclass(frozen=True, kw_only=True)
class Index:
    """A sparse index that proposes candidates; it holds keys only, so it costs little to write."""

    name: str
    hash: str
    range: str


@dataclass(frozen=True, kw_only=True)
class TableShape:
    """Keys of one table; every key attribute is a string."""

    name: str
    hash: str
    range: str | None = None
    indexes: tuple[Index, ...] = ()
    stream: bool = False
    expires_by: str | None = None
    busy: bool = False
    """Whether every job writes to it, so that the warm throughput setting applies."""


TABLES = (
    TableShape(
        name="Workloads",
        hash="id",
        indexes=(
            Index(name="inbox", hash="inbox", range="inbox_order"),
            Index(name="active", hash="active", range="active_order"),
            Index(name="listed", hash="queue", range="listed"),
            Index(name="ran", hash="queue", range="ran"),
        ),
        stream=True,
        busy=True,
    ),
    TableShape(name="Ledgers", hash="root", range="entry"),
    TableShape(name="Catalog", hash="kind", range="name"),
    TableShape(name="Manifests", hash="id", busy=True),
    TableShape(name="Timeline", hash="id", range="at", expires_by="expires", busy=True),
    TableShape(name="Nodes", hash="cluster", range="instance", expires_by="expires"),
    TableShape(name="Migrations", hash="id"),
)


class StateStack(cdk.Stack):
    """Seven tables and one bucket, with generated names that SSM parameters publish."""

    def __init__(
        self, scope: Construct, construct_id: str, *, configuration: Configuration, **options: Any
    ) -> None:
        super().__init__(scope, construct_id, **options)
        self.tables = {
            shape.name: self._table(shape, settings=configuration.state) for shape in TABLES
        }
        self.bucket = self._bucket(settings=configuration.state)
        Published(
            self,
            prefix=configuration.parameter_prefix,
            values={
                f"tables/{name.lower()}": table.table_name for name, table in self.tables.items()
            }
            | {"bucket": self.bucket.bucket_name},
        )

    def _table(self, shape: TableShape, *, settings: StateSettings) -> dynamodb.TableV2:
        warm = settings.warm_throughput if shape.busy else None
        warm_throughput = (
            dynamodb.WarmThroughput(
                read_units_per_second=warm.reads, write_units_per_second=warm.writes
            )
            if warm
            else None
        )
        return dynamodb.TableV2(
            self,
            shape.name,
            partition_key=_key(shape.hash),
            sort_key=_key(shape.range) if shape.range else None,
            billing=dynamodb.Billing.on_demand(),
            dynamo_stream=dynamodb.StreamViewType.NEW_AND_OLD_IMAGES if shape.stream else None,
            time_to_live_attribute=shape.expires_by,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=settings.deletion_protection,
            removal_policy=_removal(settings),
            warm_throughput=warm_throughput,
            global_secondary_indexes=[
                dynamodb.GlobalSecondaryIndexPropsV2(
                    index_name=index.name,
                    partition_key=_key(index.hash),
                    sort_key=_key(index.range),
                    projection_type=dynamodb.ProjectionType.KEYS_ONLY,
                    # A starved index throttles the writes to its table.
                    warm_throughput=warm_throughput,
                )
                for index in shape.indexes
            ],
        )

    def _bucket(self, *, settings: StateSettings) -> s3.Bucket:
        private: dict[str, Any] = {
            "block_public_access": s3.BlockPublicAccess.BLOCK_ALL,
            "encryption": s3.BucketEncryption.S3_MANAGED,
            "enforce_ssl": True,
            "removal_policy": _removal(settings),
        }
        access_logs = s3.Bucket(
            self,
            "AccessLogs",
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            lifecycle_rules=[s3.LifecycleRule(expiration=cdk.Duration.days(90))],
            **private,
        )
        return s3.Bucket(
            self,
            "Bucket",
            server_access_logs_bucket=access_logs,
            server_access_logs_prefix="bucket/",
            versioned=False,
            lifecycle_rules=[
                # The largest uploads are checkpoints, and none of them may take an hour.
                s3.LifecycleRule(abort_incomplete_multipart_upload_after=cdk.Duration.days(1)),
                # Of workloads that failed or were cancelled; the others' are removed when they end,
                # and what is no part of a checkpoint by `sweep`.
                s3.LifecycleRule(prefix="checkpoints/", expiration=cdk.Duration.days(90)),
                s3.LifecycleRule(prefix="passes/", expiration=cdk.Duration.days(30)),
                # A task of Step Functions waits for a year at most.
                s3.LifecycleRule(prefix="tokens/", expiration=cdk.Duration.days(366)),
            ],
            **private,
        )


def _key(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=_STRING)


def _removal(settings: StateSettings) -> cdk.RemovalPolicy:
    return cdk.RemovalPolicy.RETAIN if settings.retain else cdk.RemovalPolicy.DESTROY
