"""A step of a move: recorded if it holds, and told."""

from sluice.core.lifecycle.record import Workload
from sluice.core.migrations import story
from sluice.core.migrations.migration import Advance, Migration
from sluice.ports import Migrations, Timeline


def take_step(
    migrations: Migrations, timeline: Timeline, workload: Workload, step: Advance
) -> Migration:
    """The record after a step that holds; otherwise as somebody else has left it."""
    if migrations.apply([step]) != [True]:
        return migrations.get(step.before.id) or step.before
    now = step.after(step.before)
    if lines := story.news(step.before, now, workload):
        timeline.append(lines)
    return now
