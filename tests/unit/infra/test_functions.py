from collections import defaultdict
from typing import Any

import pytest
from sluice.message_queues import LAST_RESORTS, QUEUES

from infra.functions import FUNCTIONS
from infra.state import TABLES
from tests.unit.infra.conftest import CLONE, Assembly

CONSUMERS = {queue.consumer for queue in QUEUES}
WRITES = {"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem"}
# docs/architecture.md, "Environment of the functions": nothing else reaches a deployed function,
# no endpoint, no identity and no switch that only a development machine should have.
ENVIRONMENT = {
    *(f"SLUICE_{table.name.upper()}_TABLE" for table in TABLES),
    "SLUICE_KICKS_QUEUE_URL",
    "SLUICE_COMMANDS_QUEUE_URL",
    "SLUICE_PROVISIONS_QUEUE_URL",
    "SLUICE_SUBMISSIONS_QUEUE_URL",
    "SLUICE_INTERRUPTIONS_QUEUE_URL",
    "SLUICE_COMPLETIONS_QUEUE_URL",
    "SLUICE_ANSWERS_QUEUE_URL",
    "SLUICE_BUS_NAME",
    "SLUICE_EVENTS_OMITTED",
    "SLUICE_EVENTS_QUEUE",
    "SLUICE_INTERRUPTIONS_QUEUE",
    "SLUICE_BUCKET",
    "SLUICE_OBSERVE_FUNCTION",
    "SLUICE_DEAD_LETTERS",
    *(f"SLUICE_{name.upper()}_FUNCTION" for name in CONSUMERS),
    "POWERTOOLS_SERVICE_NAME",
    "POWERTOOLS_METRICS_NAMESPACE",
    "LOG_LEVEL",
}


def functions(assembly: Assembly) -> dict[str, dict[str, Any]]:
    found = assembly.resources("Control", "AWS::Lambda::Function").values()
    return {each["Handler"].split(".")[1]: each for each in found}


def aslist(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def statements(assembly: Assembly, stack: str = "Control") -> dict[str, list[dict[str, Any]]]:
    """Every IAM statement by the logical id of the role that has it."""
    found = defaultdict(list)
    for policy in assembly.resources(stack, "AWS::IAM::Policy").values():
        for role in policy["Roles"]:
            found[role["Ref"]] += policy["PolicyDocument"]["Statement"]
    return found


def table_rights(assembly: Assembly, function: str) -> dict[str, set[str]]:
    """DynamoDB actions by table (`Workloads`) and index (`Workloads/inbox`) of one function."""
    (role,) = aslist(functions(assembly)[function]["Role"]["Fn::GetAtt"])[:1]
    rights: dict[str, set[str]] = defaultdict(set)
    for statement in statements(assembly)[role]:
        actions = {each.removeprefix("dynamodb:") for each in aslist(statement["Action"])}
        for resource in aslist(statement["Resource"]):
            if "dynamodb:" in "".join(aslist(statement["Action"])):
                rights[table_of(resource)] |= actions
    return rights


def table_of(resource: dict[str, Any]) -> str:
    text = str(resource)
    (table,) = [shape.name for shape in TABLES if f"FnGetAtt{shape.name}" in text]
    index = text.partition("/index/")[2].rstrip("'])}")
    stream = "StreamArn" in text
    return f"{table}{'/' + index if index else ''}{'!stream' if stream else ''}"


def test_only_admit_may_write_ledgers(assembly: Assembly) -> None:
    writers = {
        shape.name
        for shape in FUNCTIONS
        if WRITES & table_rights(assembly, shape.name).get("Ledgers", set())
    }

    assert writers == {"admit"}


def test_submit_may_create_records_count_those_who_wait_and_nothing_else(
    assembly: Assembly,
) -> None:
    assert table_rights(assembly, "submit") == {
        "Workloads": {"PutItem"},
        "Workloads/inbox": {"Query"},
        "Manifests": {"PutItem"},
        "Nodes": {"GetItem"},  # the plans of NodePools: what no machine can hold
        "Catalog": {"GetItem", "Query"},
        "Timeline": {"BatchWriteItem"},
    }


def test_only_relay_reads_the_stream(assembly: Assembly) -> None:
    readers = {
        shape.name
        for shape in FUNCTIONS
        if any(name.endswith("!stream") for name in table_rights(assembly, shape.name))
    }

    assert readers == {"relay"}


def test_only_the_api_may_change_the_catalog(assembly: Assembly) -> None:
    writers = {
        shape.name
        for shape in FUNCTIONS
        if WRITES & table_rights(assembly, shape.name).get("Catalog", set())
    }

    assert writers == {"api"}


@pytest.mark.parametrize("stack", ["State", "Control", "Observability"])
def test_no_action_is_a_wildcard_and_no_resource_but_for_actions_that_take_none(
    assembly: Assembly, stack: str
) -> None:
    for of_role in statements(assembly, stack).values():
        for statement in of_role:
            actions = aslist(statement["Action"])
            assert not [action for action in actions if "*" in action]
            if "*" in aslist(statement["Resource"]):
                assert set(actions) in (
                    {"xray:PutTraceSegments", "xray:PutTelemetryRecords"},
                    {
                        "ec2:DescribeInstances",
                        "ec2:DescribeInstanceTypes",
                        "ec2:DescribeSpotPriceHistory",
                        "pricing:GetProducts",
                    },
                    {"ec2:DescribeInstances"},  # finds the machine of a drill
                    {"states:SendTaskSuccess", "states:SendTaskFailure"},
                )


def test_every_function_has_a_role_and_a_log_group_of_its_own(assembly: Assembly) -> None:
    found = functions(assembly).values()

    assert len({str(each["Role"]) for each in found}) == len(FUNCTIONS)
    assert len({str(each["LoggingConfig"]["LogGroup"]) for each in found}) == len(FUNCTIONS)
    groups = assembly.resources("Control", "AWS::Logs::LogGroup").values()
    assert {group["RetentionInDays"] for group in groups} == {30}


def test_roles_carry_no_managed_policies(assembly: Assembly) -> None:
    roles = assembly.resources("Control", "AWS::IAM::Role").values()

    assert not [role for role in roles if "ManagedPolicyArns" in role]


def test_functions_run_on_arm_with_the_size_of_the_architecture(assembly: Assembly) -> None:
    found = functions(assembly)

    for shape in FUNCTIONS:
        function = found[shape.name]
        assert function["Architectures"] == ["arm64"]
        assert function["Timeout"] == shape.timeout_seconds
        assert function["MemorySize"] == shape.memory_mb
        assert len(function["Layers"]) == 2


def test_functions_know_nothing_but_what_the_architecture_lists(assembly: Assembly) -> None:
    for name, function in functions(assembly).items():
        variables = function["Environment"]["Variables"]
        assert set(variables) <= ENVIRONMENT
        assert variables["POWERTOOLS_SERVICE_NAME"] == name


def test_submit_does_not_even_know_the_ledger(assembly: Assembly) -> None:
    variables = functions(assembly)["submit"]["Environment"]["Variables"]

    assert "SLUICE_LEDGERS_TABLE" not in variables


def test_traces_are_written_when_the_setting_asks_for_them(assembly: Assembly) -> None:
    modes = {each["TracingConfig"]["Mode"] for each in functions(assembly).values()}

    assert modes == {"Active"}


def test_only_admit_may_call_itself_in_a_loop(assembly: Assembly) -> None:
    loops = {name for name, each in functions(assembly).items() if each["RecursiveLoop"] == "Allow"}

    assert loops == {"admit"}


def test_what_is_deployed_has_a_handler() -> None:
    written = {path.stem for path in (CLONE / "functions").glob("[a-z]*.py")}

    assert written == {shape.name for shape in FUNCTIONS}


def test_only_complete_reads_task_tokens_and_answers_tasks(assembly: Assembly) -> None:
    found = functions(assembly)
    of_role = {
        name: statements(assembly)[aslist(each["Role"]["Fn::GetAtt"])[0]]
        for name, each in found.items()
    }

    def may(action: str, resource: str = "") -> set[str]:
        return {
            name
            for name, held in of_role.items()
            if any(action in aslist(s["Action"]) and resource in str(s["Resource"]) for s in held)
        }

    assert may("states:SendTaskSuccess") == may("states:SendTaskFailure") == {"complete"}
    assert may("s3:GetObject", "tokens/*") == may("s3:DeleteObject", "tokens/*") == {"complete"}
    assert may("s3:PutObject", "tokens/*") == {"submit"}
    assert table_rights(assembly, "complete") == {
        "Workloads": {"GetItem"},
        "Timeline": {"BatchWriteItem"},
    }


def test_only_the_api_looks_into_dead_letters_and_only_functions_of_queues_are_handed_them(
    assembly: Assembly,
) -> None:
    dead = {f"Queues{queue.name.title()}" for queue in LAST_RESORTS}
    dead |= {f"Queues{queue.name.title()}Dead" for queue in QUEUES}
    readers, invoked = defaultdict(set), defaultdict(set)
    for shape in FUNCTIONS:
        (role,) = aslist(functions(assembly)[shape.name]["Role"]["Fn::GetAtt"])[:1]
        for statement in statements(assembly)[role]:
            targets = [
                each.get("Fn::GetAtt", [""])[0]
                for each in aslist(statement["Resource"])
                if isinstance(each, dict)
            ]
            if "sqs:ReceiveMessage" in aslist(statement["Action"]):
                readers[shape.name] |= {t[:-8] for t in targets} & dead
            if "lambda:InvokeFunction" in aslist(statement["Action"]):
                invoked[shape.name] |= {t.partition("Function")[0].lower() for t in targets}

    assert {name: found for name, found in readers.items() if found} == {"api": dead}
    assert invoked["api"] == CONSUMERS


def test_one_function_alone_may_read_the_token_of_cedana(assembly: Assembly) -> None:
    readers = {
        role: statement
        for role, found in statements(assembly).items()
        for statement in found
        if "secretsmanager" in str(statement["Action"])
    }

    (role,) = readers
    assert functions(assembly)["act"]["Role"]["Fn::GetAtt"][0] == role
    assert readers[role]["Action"] == "secretsmanager:GetSecretValue"
    assert readers[role]["Resource"].endswith(":secret:cedana-AbCdEf")
