"""What the attributes of a record hold: its reason, errors, result, charges and answers.

Field names are the stored ones (docs/architecture.md, Workload record); times are epoch ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sluice.core.values.plain import to_plain


@dataclass(frozen=True, slots=True)
class StatusReason:
    """The newest refusal or error; false where there is none. `code`: core.values.reasons."""

    code: str = ""
    message: str = ""

    def __bool__(self) -> bool:
        return bool(self.code or self.message)

    def as_json(self) -> dict[str, str]:
        """As people and events get it; empty where there is none."""
        return {"code": self.code, "message": self.message} if self else {}


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong in a refused document; `field` is empty where it is the whole document."""

    field: str
    message: str

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.field, self.message)))


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a Job ended.

    `exit_codes`: pod → container → code. `indexes`: of an array `completed`, `failed` and
    `unfinished`, as Kubernetes writes them: `1,3-5`. `nodes`: where its pods were.
    """

    succeeded: bool
    reason: str = ""
    message: str = ""
    exit_codes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    indexes: Mapping[str, str] = field(default_factory=dict)
    exit_code_counts: Mapping[str, int] = field(default_factory=dict)
    """Code → containers, of so many pods that `exit_codes` names only some that failed."""
    node_count: int = 0
    """Of more nodes than `nodes` names."""
    index_counts: Mapping[str, int] = field(default_factory=dict)
    """Of so many ranges that `indexes` has only the first."""

    def as_json(self) -> dict[str, Any]:
        """As people and programs get it; empty for a Job that has not ended."""
        if self == NO_RESULT:
            return {}
        always = {"succeeded": self.succeeded, "reason": self.reason, "message": self.message}
        plain: dict[str, Any] = to_plain(self)
        return always | plain


@dataclass(frozen=True, slots=True)
class Charge:
    """What a budget counts for a reservation, in micro-dollars.

    `budget` is OWN_BUDGET for the workload's own `budget.maxCostUSD`. `window` numbers the window
    of the budget, `microusd` is committed at admission.
    """

    budget: str
    window: int
    microusd: int
    per_hour: int


OWN_BUDGET: Final = ""
"""How the charge for a workload's own `budget` is told from those of queues, which have names."""


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """What an admission check says of one generation; `event` is the id of the event that said it.

    `state` is a core.config.model.CheckState.
    """

    check: str
    state: str
    at: int
    generation: int
    message: str = ""
    event: str = ""


@dataclass(frozen=True, slots=True)
class PendingPolicyAct:
    """What the entry with this number of a `pendingPolicy` has done, and for which reason."""

    entry: int
    action: str
    reason: str
    message: str
    at: int
    generation: int


NO_REASON: Final = StatusReason()
NO_RESULT: Final = JobResult(succeeded=False)
