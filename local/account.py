"""The pinned CDK command line for a real account: what `make synth`, `deploy` and `destroy` run.

    python -m local.account synth|deploy|destroy [CDK ARGUMENTS]

Uses the caller's own AWS credentials and sluice.yaml; Node comes from the toolchain environment, so
that Python is all a machine needs. `cdk` asks before it widens permissions or destroys anything.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from local.errors import LocalError
from local.settings import CLONE, default_cache
from local.toolchain import tool_folders

COMMANDS = {
    "synth": ("synth", "--quiet"),
    "deploy": ("deploy", "--all"),
    "destroy": ("destroy", "--all"),
}
RETAINED = (
    "Tables and the bucket stay unless sluice.yaml says `retain: false`:"
    " docs/operations.md tells how to find and to delete them."
)


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in COMMANDS:
        print(
            f"usage: python -m local.account {'|'.join(COMMANDS)} [CDK ARGUMENTS]", file=sys.stderr
        )
        return 2
    try:
        tools = tool_folders(default_cache(), lambda line: print(line, file=sys.stderr))
    except LocalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    path = os.pathsep.join([*map(str, tools), os.environ.get("PATH", os.defpath)])
    environment = os.environ | {"PATH": path, "CDK_DISABLE_CLI_TELEMETRY": "true"}
    node = Path(shutil.which("node", path=path) or "node")
    program = CLONE / "node_modules" / "aws-cdk"
    wanted = json.loads((CLONE / "package.json").read_text())["devDependencies"]["aws-cdk"]
    description = program / "package.json"
    if not description.exists() or json.loads(description.read_text())["version"] != wanted:
        npm = node.resolve().parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
        subprocess.run(
            [node, npm, "ci", "--no-audit", "--no-fund"], cwd=CLONE, env=environment, check=True
        )
    command: list[str | Path] = [
        node,
        program / "bin" / "cdk",
        *COMMANDS[arguments[0]],
        *arguments[1:],
        "--no-notices",
    ]
    done = subprocess.run(command, cwd=CLONE, env=environment, check=False)
    if arguments[0] == "destroy" and done.returncode == 0:
        print(RETAINED, file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
