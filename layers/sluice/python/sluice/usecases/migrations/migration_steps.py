"""A step of a move: recorded if it holds, and told."""

from sluice.core.lifecycle.record import Workload
from sluice.core.migrations import migration_timeline
from sluice.core.migrations.migration import Migration, MigrationStep
from sluice.ports import Migrations, Timeline


def record_step(
    migrations: Migrations, timeline: Timeline, workload: Workload, step: MigrationStep
) -> Migration:
    """The record after a step that holds; otherwise as somebody else has left it."""
    if migrations.apply([step]) != [True]:
        return migrations.get(step.before.id) or step.before
    now = step.after(step.before)
    if lines := migration_timeline.new_events(step.before, now, workload):
        timeline.append(lines)
    return now
