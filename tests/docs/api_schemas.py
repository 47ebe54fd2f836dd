"""What the routes of the api answer, as JSON Schemas: the words that docs/reference publishes.

The published objects are open, since fields are added; tests close them, so that a field that an
answer has and no schema names is found (test_openapi.py).
"""

from __future__ import annotations

from typing import Any, Final

from sluice.core.lifecycle.record import PHASES, State
from sluice.core.values.reasons import Action

Schema = dict[str, Any]

ANY: Final[Schema] = {}
TEXT: Final[Schema] = {"type": "string"}
WHOLE: Final[Schema] = {"type": "integer"}
NUMBER: Final[Schema] = {"type": "number"}
YES_NO: Final[Schema] = {"type": "boolean"}
TEXTS: Final[Schema] = {"type": "array", "items": TEXT}
AT: Final[Schema] = {"type": "integer", "description": "epoch milliseconds"}
SECONDS: Final[Schema] = {"type": "number", "description": "seconds"}
USD: Final[Schema] = {"type": "number", "description": "US dollars"}
OPEN: Final[Schema] = {"type": "object", "additionalProperties": True}


def obj(_may: Schema | None = None, /, **fields: Schema) -> Schema:
    """An object that has all `fields`, and may have those of `_may`."""
    return {
        "type": "object",
        "properties": fields | (_may or {}),
        "required": sorted(fields),
    }


def words(*values: str) -> Schema:
    return {"type": "string", "enum": [*values]}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def mapping(schema: Schema, told: str = "") -> Schema:
    found: Schema = {"type": "object", "additionalProperties": schema}
    return found | ({"description": told} if told else {})


def array(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def items(schema: Schema, _may: Schema | None = None, /, **fields: Schema) -> Schema:
    return obj(_may, items=array(schema), **fields)


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


QUANTITIES: Final = mapping(TEXT, "resource to Kubernetes quantity")
COUNTS: Final = mapping(WHOLE)
FIELD_ERRORS: Final = array(obj(field=TEXT, message=TEXT))
RESOURCES_USED: Final = obj(
    seconds=SECONDS, cpuSeconds=NUMBER, memoryGibSeconds=NUMBER, gpuSeconds=NUMBER, usd=USD
)
PART_OF_COST: Final = ref("ResourcesUsed")
LEDGER: Final = {
    "root": TEXT,
    "version": WHOLE,
    "reservations": WHOLE,
    "differences": WHOLE,
    "moved": YES_NO,
}
DEAD_LETTER: Final = obj(id=TEXT, sender=TEXT, sentAt=or_null(AT), why=TEXT, body=TEXT, size=WHOLE)
QUOTA_LINE: Final = ("nominal", "used", "borrowed", "lent", "available")
NEIGHBOUR: Final = {
    "id": TEXT,
    "name": TEXT,
    "queue": TEXT,
    "priority": WHOLE,
    "request": QUANTITIES,
    "createdAt": AT,
    "at": AT,
}
RUN: Final = obj(
    {
        **dict.fromkeys(
            ("admittedAt", "dispatchedAt", "startedAt", "endedAt", "boundAt", "stoppedAt"), AT
        ),
        **dict.fromkeys(("cluster", "outcome", "flavor", "capacity", "node", "instance"), TEXT),
        **dict.fromkeys(("usdPerHour", "onDemandUsdPerHour"), USD),
        **dict.fromkeys(("interruptedAt", "backTo"), AT),
        "counts": COUNTS,
        "why": TEXT,
        "by": TEXT,
        "lostMs": WHOLE,
        "selfSaved": YES_NO,
        "microusd": WHOLE,
    },
    generation=WHOLE,
)
WORKLOAD: Final = obj(
    {
        **dict.fromkeys(
            ("clusterQueue", "root", "priorityClass", "user", "tenant", "cluster"), TEXT
        ),
        **dict.fromkeys(("digest", "placed", "nodepool", "capacity", "instance", "zone"), TEXT),
        **dict.fromkeys(("createdAt", "firstAdmittedAt", "admittedAt", "dispatchedAt"), AT),
        **dict.fromkeys(("startedAt", "finishedAt", "lastCheckpointAt"), AT),
        **dict.fromkeys(("costUsd", "savedUsd", "costPerHourUsd"), USD),
        "name": TEXT,
        "namespace": TEXT,
        "labels": mapping(TEXT),
        "reason": ref("Reason"),
        "position": WHOLE | {"description": "1 is the head of its queue"},
        "held": YES_NO,
        "request": QUANTITIES,
        "podSets": array(
            obj(
                {"minCount": WHOLE, "admitted": WHOLE, "flavors": TEXTS},
                name=TEXT,
                count=WHOLE,
                requests=QUANTITIES,
            )
        ),
        "flavors": mapping(TEXT, "resource to flavor"),
        "checks": mapping(TEXT, "admission check to its state"),
        "time": obj(seconds=SECONDS, parts=array(obj(what=TEXT, seconds=SECONDS))),
        "unpricedSeconds": SECONDS,
        "result": obj(
            {
                "exitCodes": mapping(COUNTS),
                "indexes": mapping(TEXT),
                "nodes": TEXTS,
            },
            succeeded=YES_NO,
            reason=TEXT,
            message=TEXT,
        ),
        "errors": FIELD_ERRORS,
        "runs": array(ref("Run")),
        "interruptions": obj(
            {"lostWorkUnknown": WHOLE, "spotSavedUsd": USD, "notRepeatedUsd": USD},
            moves=WHOLE,
            lostWorkSeconds=SECONDS,
            standstillSeconds=SECONDS,
            lostSeconds=SECONDS,
        ),
        "sentAs": TEXT
        | {
            "description": "the id that was asked for, where the document was refused under another"
        },
    },
    id=TEXT,
    queue=TEXT,
    kind=TEXT,
    phase=words(*PHASES),
    state=words(*State),
    generation=WHOLE,
    priority=WHOLE,
    recoveries=WHOLE,
    waitedMs=WHOLE,
)
STEERED: Final[Schema] = WORKLOAD | {
    "description": "the workload as it is now; `result` says in a sentence what was done",
    "properties": WORKLOAD["properties"] | {"result": TEXT},
    "required": [*WORKLOAD["required"], "result"],
}

COMPONENTS: Final[Schema] = {
    "Error": obj(
        error=obj(
            {"hint": TEXT},
            code=words(
                *("Invalid", "Forbidden", "NotFound", "NoSuchRoute", "Ambiguous", "Conflict"),
                *("Unreachable", "Internal"),
            ),
            message=TEXT,
            errors=FIELD_ERRORS,
        )
    ),
    "Reason": obj(code=TEXT, message=TEXT, action=words(*Action)),
    "ResourcesUsed": RESOURCES_USED,
    "Run": RUN,
    "Workload": WORKLOAD,
    "Steered": STEERED,
    "Object": obj(
        {"apiVersion": TEXT, "spec": OPEN}, kind=TEXT, metadata=obj({"namespace": TEXT}, name=TEXT)
    )
    | {"description": "an applied object, as it was applied", "additionalProperties": True},
}
COMPONENTS["Object"]["properties"]["metadata"]["additionalProperties"] = True

CAPACITY: Final = items(
    obj(
        {
            "flavors": TEXTS,
            "demandCpu": TEXT,
            "limitCpu": TEXT,
            "largest": TEXTS,
            "setByOthers": TEXTS,
            "closed": or_null(OPEN),
        },
        cluster=TEXT,
        nodepool=TEXT,
        capacity=TEXT,
        types=TEXTS,
        zones=TEXTS,
        nodes=WHOLE,
        ready=WHOLE,
        provisioning=WHOLE,
        interrupted24h=WHOLE,
        requestedOfAllocatable=ANY,
        saveProcesses=WHOLE,
        closeConnections=WHOLE,
        costPerHourUsd=or_null(USD),
    ),
    quarantine=array(OPEN),
)
CHECKPOINT: Final = obj(
    {"parts": array(OPEN), "failed": array(WHOLE), "failure": TEXT},
    generation=WHOLE,
    uri=TEXT,
    at=AT,
    driver=TEXT,
    size=WHOLE,
    took_ms=WHOLE,
    parent=TEXT,
    node=TEXT,
    image=TEXT,
    removed=YES_NO,
    cpu=TEXT,
    **{"from": TEXT},
)
COSTS: Final = obj(
    {"cursor": TEXT},
    since=AT,
    until=AT,
    by=TEXT,
    items=array(
        obj(
            key=TEXT,
            workloads=WHOLE,
            runs=WHOLE,
            parts=mapping(PART_OF_COST),
            total=PART_OF_COST,
            unpriced=PART_OF_COST,
            spotSavedUsd=USD,
            spotSavingUnknown=PART_OF_COST,
            lossesUntold=WHOLE,
        )
    ),
)
DEAD_LETTERS_OF: Final = obj(
    queue=TEXT,
    count=WHOLE,
    function=TEXT,
    data=YES_NO,
    redrivable=YES_NO,
    advice=TEXT,
    items=array(DEAD_LETTER),
)
IDENTITY: Final = obj(
    who=TEXT,
    user=TEXT | {"description": "whom your submissions name: `user` of a workload"},
    tenant=TEXT,
    namespaces=TEXTS,
    sendsAs=TEXT,
    home=TEXT,
    admin=YES_NO,
    bootstrap=YES_NO,
)
QUEUES: Final = items(
    obj(
        {"budgets": array(OPEN)},
        **dict.fromkeys(QUOTA_LINE, QUANTITIES),
        name=TEXT,
        cohort=or_null(TEXT),
        weight=NUMBER,
        flavors=mapping(mapping(obj(**dict.fromkeys(QUOTA_LINE, TEXT)))),
        share=NUMBER,
        shareResource=TEXT,
        strategy=TEXT,
        pending={"type": ["integer", "string"], "description": "a number, or `1000+`"},
        running=WHOLE,
        oldestSeconds=or_null(SECONDS),
        p50WaitSeconds=or_null(SECONDS),
        p95WaitSeconds=or_null(SECONDS),
        localQueues=TEXTS,
        status=TEXT,
    )
)
SHARES: Final = items(
    obj(
        name=TEXT,
        kind=words("ClusterQueue", "Cohort"),
        parent=TEXT,
        depth=WHOLE,
        weight=NUMBER,
        share=NUMBER,
        resource=TEXT,
        borrowed=QUANTITIES,
        decides=YES_NO,
    ),
    localQueues=array(
        obj(
            name=TEXT,
            clusterQueue=TEXT,
            weight=NUMBER,
            consumed=mapping(TEXT),
            inUse=QUANTITIES,
            pendingPenalties=WHOLE,
            score=or_null(NUMBER),
            halfLifeSeconds=SECONDS,
        )
    ),
)
STATUS: Final = obj(
    at=AT,
    states=COUNTS,
    ended24h=COUNTS,
    pending=array(obj(**{"class": TEXT}, code=TEXT, count=WHOLE)),
    oldestPending=or_null(
        obj(id=TEXT, name=TEXT, queue=TEXT, seconds=SECONDS, reason=or_null(ref("Reason")))
    ),
    workloads=obj(count=WHOLE, usdPerHour=USD, unpriced=WHOLE, spotShare=or_null(NUMBER)),
    machines=obj(nodes=WHOLE, ready=WHOLE, spot=WHOLE, usdPerHour=USD, unpriced=WHOLE),
    recoveries24h=obj(count=WHOLE, lostWorkSeconds=SECONDS, lossesUntold=WHOLE),
)
WHY: Final = obj(
    {
        "placed": TEXT,
        "unplacedPods": array(obj({"karpenter": TEXT}, pod=TEXT, waitedMs=WHOLE, message=TEXT)),
        "podsReady": obj(timeoutMs=WHOLE, until=WHOLE, leftMs=WHOLE),
        "pods": WHOLE,
        "quota": array(
            obj(
                **dict.fromkeys(("flavor", "resource", "request", "nominal", "used"), TEXT),
                **dict.fromkeys(("available", "potential"), TEXT),
            )
        ),
        "holders": array(obj(**NEIGHBOUR, since=AT)),
        "ahead": array(obj(**NEIGHBOUR)),
        "position": or_null(WHOLE),
        "waiting": WHOLE,
        "approximateWaitSeconds": or_null(obj(least=SECONDS, most=or_null(SECONDS))),
        "wouldHelp": TEXTS,
    },
    id=TEXT,
    name=TEXT,
    phase=words(*PHASES),
    clusterQueue=TEXT,
    reason=or_null(ref("Reason")),
    attempts=array(ref("Run")),
    headline=TEXT,
    toDo=TEXT,
    commands=array(obj(command=TEXT, purpose=TEXT)),
)
