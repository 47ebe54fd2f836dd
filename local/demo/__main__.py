"""The main job, told and checked: quota, jobs through SQS, nodes by Karpenter, spot reclaims.

    python -m local.demo [--keep]

Runs the commands that a user would type, prints them, and checks what they claim against the
cluster and S3. Exit code 0 means that every check held; otherwise one line says which did not.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence

from local.demo.interruption import dumped_example, saving_itself_example
from local.demo.quota import quota_example
from local.demo.telling import SLUICE, DemoError, say, sluice
from local.demo.witness import Witness
from local.endpoints import Endpoints
from local.settings import CLONE, Layout, default_state


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m local.demo", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--keep", action="store_true", help="leave the stack running")
    chosen = parser.parse_args(arguments)
    print("Sluice demo: everything runs on 127.0.0.1 and is gone afterwards.\n", flush=True)
    try:
        sluice("local", "up", "--fresh")
        say("the stack is up and deployed")
        witness = Witness(Endpoints.read(Layout(default_state()).endpoints))
        for part in (quota_example, saving_itself_example, dumped_example):
            part(witness)
    except DemoError as error:
        print(f"\n✗ {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; the stack is being stopped", file=sys.stderr)
        return 130
    finally:
        if not chosen.keep:
            subprocess.run([SLUICE, "local", "down"], cwd=CLONE, check=False)
    say("done: every check held")
    return 0


if __name__ == "__main__":
    sys.exit(main())
