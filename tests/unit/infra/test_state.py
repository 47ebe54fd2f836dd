from infra.state import TABLES
from tests.bench.metered.dynamodb import TABLES as METERED
from tests.unit.infra.conftest import Assembly

TABLE = "AWS::DynamoDB::GlobalTable"
KEYS = {
    "Workloads": ["id"],
    "Ledgers": ["root", "entry"],
    "Catalog": ["kind", "name"],
    "Manifests": ["id"],
    "Timeline": ["id", "at"],
    "Nodes": ["cluster", "instance"],
    "Migrations": ["id"],
}
# Replacing one of these loses its data: rename nothing here without a plan for that.
STATEFUL = {
    "AccessLogs8B620ECA",
    "Bucket83908E77",
    "Catalog742F25FD",
    "Ledgers871C224C",
    "Manifests6831C0C3",
    "Migrations23B444C5",
    "Nodes66C30434",
    "Timeline25B2E0B3",
    "WorkloadsD6E151F0",
}


def tables(assembly: Assembly) -> dict:
    found = assembly.resources("State", TABLE)
    return {name: found[logical] for logical in found for name in KEYS if logical.startswith(name)}


def test_logical_ids_of_stateful_resources_stay(assembly: Assembly) -> None:
    kinds = {TABLE, "AWS::S3::Bucket"}
    resources = assembly.template("State")["Resources"]

    assert {name for name, each in resources.items() if each["Type"] in kinds} == STATEFUL


def test_every_table_has_the_keys_of_the_architecture(assembly: Assembly) -> None:
    keys = {
        name: [each["AttributeName"] for each in table["KeySchema"]]
        for name, table in tables(assembly).items()
    }

    assert keys == KEYS


def test_every_table_is_protected_and_billed_on_demand(assembly: Assembly) -> None:
    for table in tables(assembly).values():
        (replica,) = table["Replicas"]
        assert table["BillingMode"] == "PAY_PER_REQUEST"
        assert replica["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True
        assert replica["DeletionProtectionEnabled"] is True


def test_tables_and_buckets_are_retained(assembly: Assembly) -> None:
    resources = assembly.template("State")["Resources"]

    assert {resources[name]["DeletionPolicy"] for name in STATEFUL} == {"Retain"}


def test_the_indexes_of_workloads_hold_keys_only(assembly: Assembly) -> None:
    indexes = tables(assembly)["Workloads"]["GlobalSecondaryIndexes"]

    assert {
        index["IndexName"]: [key["AttributeName"] for key in index["KeySchema"]]
        for index in indexes
    } == {
        "inbox": ["inbox", "inbox_order"],
        "active": ["active", "active_order"],
        "listed": ["queue", "listed"],
        "ran": ["queue", "ran"],
    }
    assert {index["Projection"]["ProjectionType"] for index in indexes} == {"KEYS_ONLY"}


def test_only_workloads_streams_both_images(assembly: Assembly) -> None:
    streams = {
        name: table["StreamSpecification"]["StreamViewType"]
        for name, table in tables(assembly).items()
        if "StreamSpecification" in table
    }

    assert streams == {"Workloads": "NEW_AND_OLD_IMAGES"}


def test_only_the_timeline_and_lost_machines_expire(assembly: Assembly) -> None:
    expiring = {
        name: table["TimeToLiveSpecification"]["AttributeName"]
        for name, table in tables(assembly).items()
        if "TimeToLiveSpecification" in table
    }

    assert expiring == {"Timeline": "expires", "Nodes": "expires"}


def test_the_tables_that_every_job_writes_are_warmed_with_their_indexes(
    assembly: Assembly,
) -> None:
    wanted = {"ReadUnitsPerSecond": 20000, "WriteUnitsPerSecond": 8000}
    found = tables(assembly)

    assert {name for name, table in found.items() if table.get("WarmThroughput") == wanted} == {
        "Workloads",
        "Manifests",
        "Timeline",
    }
    for index in found["Workloads"]["GlobalSecondaryIndexes"]:
        assert index["WarmThroughput"] == wanted


def test_names_are_generated_and_published(assembly: Assembly) -> None:
    parameters = assembly.resources("State", "AWS::SSM::Parameter").values()

    assert all("TableName" not in table for table in tables(assembly).values())
    assert {each["Name"] for each in parameters} == {
        "/sluice/bucket",
        *(f"/sluice/tables/{name.lower()}" for name in KEYS),
    }


def test_benchmarks_know_the_tables_as_they_are_deployed() -> None:
    deployed = {
        shape.name: (
            shape.hash,
            shape.range or "",
            {index.name: (index.hash, index.range) for index in shape.indexes},
        )
        for shape in TABLES
    }

    assert deployed == METERED
