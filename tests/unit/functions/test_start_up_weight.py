"""Every cold start pays for what a handler imports, so it imports little and only its own work."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HANDLERS = (
    "submit",
    "admit",
    "relay",
    "act",
    "observe",
    "interrupt",
    "provision",
    "sweep",
    "complete",
    "answer",
    "api",
)
# What belongs to tools, tests and the local stack.
NEVER = ("kubernetes", "moto", "jsonschema", "yaml", "rich", "click", "aws_cdk", "requests")


def loaded_by(handler: str) -> list[str]:
    """Names of all modules that a fresh interpreter holds once the handler's use case is built."""
    program = f"""
import json, os, sys
for name in ("WORKLOADS", "LEDGERS", "CATALOG", "MANIFESTS", "TIMELINE", "NODES", "MIGRATIONS"):
    os.environ[f"SLUICE_{{name}}_TABLE"] = name.lower()
for name in ("KICKS", "COMMANDS", "SUBMISSIONS", "INTERRUPTIONS", "PROVISIONS", "COMPLETIONS"):
    os.environ[f"SLUICE_{{name}}_QUEUE_URL"] = f"https://sqs.invalid/{{name.lower()}}"
from sluice.message_queues import DEAD_LETTERS
for queue in DEAD_LETTERS.values():
    os.environ[f"SLUICE_{{queue.consumer.upper()}}_FUNCTION"] = "f"
os.environ |= {{
    "SLUICE_DEAD_LETTERS": ",".join(f"{{queue}}=q" for queue in DEAD_LETTERS),
    "SLUICE_BUCKET": "b", "SLUICE_BUS_NAME": "b", "SLUICE_OBSERVE_FUNCTION": "f",
    "AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x",
}}
import functions.{handler}
from sluice import bootstrap
bootstrap.{handler}()
print(json.dumps(sorted(sys.modules)))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found: list[str] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_handler_loads_no_tools_and_no_other_use_case(handler: str) -> None:
    modules = loaded_by(handler)

    assert sorted({name.partition(".")[0] for name in modules} & set(NEVER)) == []
    ours = ("sluice.usecases.", "sluice.api")
    cases = {name.rpartition(".")[2] for name in modules if name.startswith(ours)}
    others = set(HANDLERS) - {handler}
    if handler == "api":  # it asks what a pass and a submission would say
        others -= {"admit", "submit"}
    if handler == "observe":  # it submits what users create in the cluster themselves
        others -= {"submit"}
    assert handler in cases
    assert cases & others == set()
    assert "sluice.simulation" not in modules
