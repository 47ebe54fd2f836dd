"""Entry point of the `sluice` command."""

import sys
from collections.abc import Sequence

import click
from sluice.client.errors import SluiceClientError
from sluice.client.exit_codes import ExitCode

from cli.app import App
from cli.errors import CommandError
from cli.lazy import DISTRIBUTION, CommandEntry, LazyGroup

SUBMIT, LOOK, STEER, ACCOUNT, OPERATE = "Submit", "Look and wait", "Steer", "Account", "Operate"

VERBS = (
    CommandEntry("submit", "cli.commands.submit:submit", "Submit job documents.", SUBMIT),
    CommandEntry("run", "cli.commands.run:run", "Submit one container without a file.", SUBMIT),
    CommandEntry("ls", "cli.commands.ls:ls", "List workloads.", LOOK),
    CommandEntry("get", "cli.commands.get:get", "Show a workload's document and status.", LOOK),
    CommandEntry(
        "describe",
        "cli.commands.describe:describe",
        "Show everything known about a workload.",
        LOOK,
    ),
    CommandEntry("why", "cli.commands.why:why", "Explain why a workload does not run.", LOOK),
    CommandEntry(
        "logs", "cli.commands.logs:logs", "Print a workload's logs, also after it ended.", LOOK
    ),
    CommandEntry("events", "cli.commands.events:events", "Print the timeline of a workload.", LOOK),
    CommandEntry(
        "status", "cli.commands.status:status", "Show a summary of the whole system.", LOOK
    ),
    CommandEntry("top", "cli.commands.status:top", "Show the summary, refreshed.", LOOK),
    CommandEntry(
        "wait", "cli.commands.wait:wait", "Wait for workloads and report their outcome.", LOOK
    ),
    CommandEntry("cancel", "cli.commands.steer:cancel", "Cancel workloads.", STEER),
    CommandEntry(
        "hold", "cli.commands.steer:hold", "Keep pending workloads from being admitted.", STEER
    ),
    CommandEntry("release", "cli.commands.steer:release", "Undo hold.", STEER),
    CommandEntry(
        "requeue", "cli.commands.steer:requeue", "Stop workloads and queue them again.", STEER
    ),
    CommandEntry("reprioritize", "cli.commands.steer:reprioritize", "Change priority.", STEER),
    CommandEntry("check", "cli.commands.check:check", "Answer an admission check.", STEER),
    CommandEntry(
        "checkpoint", "cli.commands.migrate:checkpoint", "Checkpoint a running workload.", STEER
    ),
    CommandEntry(
        "migrate", "cli.commands.migrate:migrate", "Move a running workload to another node.", STEER
    ),
    CommandEntry("restore", "cli.commands.migrate:restore", "Restart from a checkpoint.", STEER),
    CommandEntry("checkpoints", "cli.commands.checkpoints:checkpoints", "List checkpoints.", LOOK),
    CommandEntry(
        "queues", "cli.commands.queues:queues", "Show queues: quota, use, shares.", ACCOUNT
    ),
    CommandEntry(
        "capacity", "cli.commands.capacity:capacity", "Show nodes by cluster and pool.", ACCOUNT
    ),
    CommandEntry(
        "shares", "cli.commands.shares:shares", "Show fair shares and past usage.", ACCOUNT
    ),
    CommandEntry(
        "cost", "cli.commands.cost:cost", "Show costs, split into useful and lost work.", ACCOUNT
    ),
    CommandEntry("apply", "cli.commands.apply:apply", "Apply queues, flavors, tenants.", OPERATE),
    CommandEntry("diff", "cli.commands.apply:diff", "Show what apply would change.", OPERATE),
    CommandEntry("objects", "cli.commands.objects:objects", "List applied objects.", OPERATE),
    CommandEntry(
        "delete", "cli.commands.apply:delete", "Delete a queue, flavor or tenant.", OPERATE
    ),
    CommandEntry("cordon", "cli.commands.drain:cordon", "Admit no new work to a cluster.", OPERATE),
    CommandEntry("uncordon", "cli.commands.drain:uncordon", "Undo cordon.", OPERATE),
    CommandEntry("admin", "cli.commands.admin:admin", "Dead letters, ledgers, clusters.", OPERATE),
    CommandEntry(
        "doctor", "cli.commands.doctor:doctor", "Check settings, access and health.", OPERATE
    ),
    CommandEntry(
        "drill", "cli.commands.drill:drill", "Interrupt a spot instance on purpose.", OPERATE
    ),
    CommandEntry(
        "declare-lost",
        "cli.commands.declare_lost:declare_lost",
        "Declare that a cluster will not come back.",
        OPERATE,
    ),
    CommandEntry("replay", "cli.commands.replay:replay", "Re-run a recorded decision.", OPERATE),
    CommandEntry("simulate", "cli.simulate:simulate", "Run scenarios in virtual time.", OPERATE),
    CommandEntry(
        "metrics", "cli.commands.metrics:metrics", "Print or serve metrics.", ACCOUNT, "metrics"
    ),
    CommandEntry("ui", "cli.commands.ui:ui", "Open the pages in a browser.", LOOK, "ui"),
    CommandEntry(
        "local", "cli.local:local", "Start and stop the embedded stack.", OPERATE, "local"
    ),
    CommandEntry(
        "config", "cli.commands.config:config", "Show settings and where they come from.", OPERATE
    ),
    CommandEntry(
        "schema", "cli.commands.schema:schema", "Print the published JSON Schemas.", OPERATE
    ),
    CommandEntry(
        "completion", "cli.commands.completion:completion", "Print shell completion.", OPERATE
    ),
)


@click.command(
    cls=LazyGroup,
    verbs=VERBS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Workloads are named by id, unique prefix or unique name. "
    "Exit codes: 0 success, 1 error, 2 usage, 3 not found or "
    "ambiguous, 4 permission, 5 refused, 6 key reused, 7 unavailable, 100 failed, 101 not "
    "finished, 102 workload not found, 103 cancelled, 104 rejected, 105 recovery budget "
    "exhausted, 130 interrupted.",
)
@click.option("--profile", help="AWS profile; means an account, never the embedded stack.")
@click.option("--api-url", help="Address of the api, in place of any discovery.")
@click.version_option(package_name=DISTRIBUTION, message="%(version)s")
@click.pass_context
def sluice(ctx: click.Context, profile: str | None, api_url: str | None) -> None:
    """Decides which batch job may run, where, and on what hardware."""
    if ctx.obj is None:
        ctx.obj = App(profile=profile, api_url=api_url)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and ends the process with its exit code."""
    try:
        code = sluice.main(arguments, prog_name="sluice", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(ExitCode.INTERRUPTED)
    except SluiceClientError as error:
        CommandError(error).show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the pipe has exited
        sys.exit(ExitCode.ERROR)
    sys.exit(code if isinstance(code, int) else ExitCode.OK)


if __name__ == "__main__":
    main()
