"""Controllers of further kinds of jobs, built and started where a stack asks for them."""

from collections.abc import Iterable

from sluice.core.jobs.table import KINDS

from local.add_ons import training_operator
from local.add_ons.add_on import AddOn

ADD_ONS = {each.name: each for each in (training_operator.ADD_ON,)}
"""By the name that `sluice local up --with` takes."""


def programs_of(names: Iterable[str]) -> list[str]:
    return [ADD_ONS[name].program for name in names]


def kinds_of(names: Iterable[str]) -> list[str]:
    """The kinds of jobs that add-ons bring."""
    wanted = set(names)
    return [kind.kind for kind in KINDS.values() if kind.add_on in wanted]


__all__ = ["ADD_ONS", "AddOn", "kinds_of", "programs_of"]
