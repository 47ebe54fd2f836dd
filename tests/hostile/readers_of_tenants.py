"""What tenants, administrators and whoever answers checks send, each beside a good neighbour."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from random import Random
from typing import Any

from sluice import bootstrap
from sluice.api.routes import ROUTES
from sluice.core.lifecycle.record import State
from sluice.core.values.identity import workload_id
from sluice.usecases.steering.answer import AnswerByEvent

from functions import answer, submit
from tests.hostile.desk import Desk, Text, check_item
from tests.hostile.grammar import SCHEMA, FromSchema, Grammar, words_of
from tests.unit.api.control_plane import (
    ACCOUNT,
    ADMIN,
    BLUE,
    COMPANY,
    CONTEXT,
    RED,
    cluster,
    cluster_queue,
    context_of,
    flavor,
    local_queue,
    native,
    tenant,
)
from tests.unit.functions.events import sqs
from tests.unit.submission.builders import (
    a_job,
    a_job_set,
    a_replicated_job,
    a_verbatim,
    a_workload,
)
from tests.unit.submission.test_options import FULL
from tests.unit.usecases.plane import a_document


def of_tenant(seed: Any) -> Any:
    """A seed in the namespace of the tenant `red`, with a queue that exists."""
    text = json.dumps(seed).replace("team-blue", "red").replace("research", "batch")
    return json.loads(text)


WORKLOADS = [
    of_tenant(each)
    for each in (
        a_workload(**FULL),
        a_workload(),
        a_verbatim(a_job()),
        a_verbatim(a_job_set(a_replicated_job("a"))),
        a_job(parallelism=2),
        a_job_set(a_replicated_job("a", 2), a_replicated_job("b")),
        a_document("k", resources={"cpu": "500m"}),
    )
]
_TEXTS = {
    "queue": ("batch",),
    "image": ("example:1",),
    "apiVersion": ("batch/v1",),
    "kind": ("Job",),
    "namespace": ("red",),
    "uri": ("s3://ckpt/x/",),
    "after": ("1h",),
}


def submissions(dice: Random) -> Text:
    seeds = [*WORKLOADS, FromSchema(dice, SCHEMA, _TEXTS).value(SCHEMA)]
    return Grammar(dice, WORDS, seeds).text()


def lists(dice: Random) -> Text:
    items = [Grammar(dice, WORDS, WORKLOADS).document() for _ in range(dice.choice((1, 3, 20)))]
    good = native("inside", 1, key="inside")
    items.insert(dice.randrange(len(items) + 1), good)
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def events(dice: Random) -> Text:
    envelope = {
        "version": "0",
        "id": "e-1",
        "source": "red.pipeline",
        "detail-type": "Sluice Workload Submission",
        "detail": {"specversion": "1.0", "data": dice.choice(WORKLOADS)},
    }
    plain = {**envelope, "detail": dice.choice(WORKLOADS)}
    return Grammar(dice, WORDS, [envelope, plain]).text()


def read_submission(text: Text) -> None:
    desk = Desk()
    desk.message(text)
    desk.go_on()


def read_list(text: Text) -> None:
    desk = Desk()
    desk.message(text)
    inside = desk.workloads.rows.get(workload_id("red", "inside"))
    whole = len(desk.workloads.rows) == 2  # the List itself was refused: too large, no JSON
    assert whole or (inside and inside.state is not State.REJECTED), "a neighbour in the List"
    desk.go_on()


def read_event(text: Text) -> None:
    granting = tenant("red", "AROARED", "red")
    granting["spec"]["eventSources"] = ["red.pipeline"]
    desk = Desk((*(o for o in COMPANY if o["metadata"]["name"] != "red"), granting))
    desk.message(text, queue=min(bootstrap.queues_of_events()))
    desk.go_on()


def read_reference(text: Text) -> None:
    """The document that lies behind a reference; the reference itself is read as a submission."""
    granting = tenant("red", "AROARED", "red")
    granting["spec"]["buckets"] = ["bucket/*"]
    desk = Desk((*(o for o in COMPANY if o["metadata"]["name"] != "red"), granting))
    body = text.encode("utf-8", "surrogatepass")
    desk.manifests.objects["s3://bucket/key"] = body
    reference = {"manifestRef": "s3://bucket/key", "sha256": hashlib.sha256(body).hexdigest()}
    desk.message(json.dumps({"kind": "List", "items": [reference]}))
    desk.go_on()


QUEUE_WITH_ALL = cluster_queue(
    "red-cq",
    64,
    preemption={
        "withinClusterQueue": "LowerPriority",
        "reclaimWithinCohort": "Any",
        "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 10},
    },
    flavorFungibility={"whenCanBorrow": "Borrow", "whenCanPreempt": "TryNextFlavor"},
    fairSharing={"weight": "2.5"},
    queueingStrategy="StrictFIFO",
    stopPolicy="None",
)
OBJECTS = [
    *COMPANY,
    QUEUE_WITH_ALL,
    {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": {"name": "company"},
     "spec": {"parentName": "all", "fairSharing": {"weight": "1"}}},
    {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
     "metadata": {"name": "high"}, "value": 100},
    {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck",
     "metadata": {"name": "approval"}, "spec": {"controllerName": "sluice.dev/callback"}},
    {"apiVersion": "sluice.dev/v1", "kind": "Budget", "metadata": {"name": "b"},
     "spec": {"clusterQueue": "red-cq", "limitUSD": "100", "window": "720h",
              "start": "2026-01-01T00:00:00Z", "assumedRuntime": "1h"}},
    {"apiVersion": "sluice.dev/v1", "kind": "SchedulingPolicy", "metadata": {"name": "p"},
     "spec": {"rootCohort": "company", "aging": {"interval": "1h", "reserveAfter": "2h"},
              "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]},
              "admissionFairSharing": {"usageHalfLifeTime": "10m", "resourceWeights": {"cpu": 1}},
              "minRuntime": "1m", "saveVictimsWithin": "30s",
              "resources": {"quotaCheckStrategy": "IgnoreUndeclared"}}},
    {"apiVersion": "sluice.dev/v1", "kind": "Cluster", "metadata": {"name": "c2"},
     "spec": {"flavors": ["spot"], "cordoned": True, "managePools": False, "maxWaitingPods": 10,
              "region": "us-east-1", "buckets": ["b"],
              "cedana": {"url": "https://c.test", "clusterId": "c", "tokenSecret": "arn:x"}}},
    {**tenant("full", "AROAFULL", "full"),
     "spec": {"principals": ["AROAFULL"], "namespaces": ["full"], "eventSources": ["x.y"],
              "admin": False, "images": ["a/*"], "requireDigest": True, "podSecurity": "baseline",
              "runAsUser": 1000, "serviceAccountName": "a", "maxPods": 10, "maxGpus": 1,
              "maxRuntime": "1h", "requireLimits": True, "secrets": ["s*"], "configMaps": ["c"],
              "claims": ["d"], "environment": ["AWS_REGION"], "buckets": ["b/*"],
              "checks": ["approval"], "annotations": ["x.dev"], "maxPending": 5}},
    flavor("od"),
    cluster("c3"),
    local_queue("red", "second", "red-cq"),
]  # fmt: skip
WORDS = words_of(*WORKLOADS, *OBJECTS)


def configurations(dice: Random) -> Text:
    grammar = Grammar(dice, WORDS, OBJECTS)
    documents = [grammar.document() for _ in range(dice.choice((1, 1, 3)))]
    return json.dumps({"documents": documents})


def read_configuration(text: Text) -> None:
    """Refused with reasons, or applied; then submission, admission and every view go on."""
    desk = Desk()
    for dry_run in (True, False):
        body = json.dumps({**json.loads(text), "dryRun": dry_run})
        desk.ask(request("POST", "/catalog", ADMIN, body))
    check_item(json.loads(json.dumps(dict(desk.catalog.kept.documents))))
    mine = json.dumps(native("mine", 1, key="mine"))
    desk.submit([submit.message_of(record) for record in sqs(mine)["Records"]])
    good = json.dumps(native("good", 1, key="good", namespace="blue"))
    batch = sqs(good, queue="submissions")
    batch["Records"][0]["attributes"]["SenderId"] = BLUE.iam["userId"]
    assert desk.submit([submit.message_of(batch["Records"][0])]).failed == ()
    desk.settle()
    for path in ("/queues", "/capacity", "/shares", "/status", "/doctor", "/ledgers", "/workloads"):
        desk.ask(request("GET", path, ADMIN))


def request(method: str, path: str, signer: Any, body: Any = None, **query: Any) -> dict[str, Any]:
    return {
        "rawPath": path,
        "queryStringParameters": query or None,
        "requestContext": context_of(method, signer),
        "body": body,
    }


def questions(dice: Random) -> Text:
    grammar = Grammar(dice, WORDS, WORKLOADS)
    documents = [grammar.document() for _ in range(dice.choice((1, 3)))]
    return json.dumps({"documents": documents})


def read_question(text: Text) -> None:
    """`/whatif`, one verdict for each document."""
    desk = Desk()
    status, answered = desk.ask(request("POST", "/whatif", RED, text))
    if status == 200:
        assert len(answered["items"]) == len(json.loads(text)["documents"])


@cache
def routes() -> tuple[tuple[str, str], ...]:
    return tuple((route.method, route.template) for route in ROUTES)


QUERIES = ("queue", "state", "name", "user", "selector", "since", "until", "limit", "cursor", "ids",
           "by", "after", "generation", "pod", "container", "offset", "dryRun")  # fmt: skip
SENDERS = {"admin": ADMIN, "red": RED}


def requests(dice: Random) -> Text:
    """A request of some route: its path, query and body each perhaps odd."""
    grammar = Grammar(dice, WORDS, [{"reason": "x", "dryRun": True, "priority": 1,
                                     "checkpoint": "s3://x", "state": "Ready",
                                     "message": "m", "token": "t",
                                     "documents": [dice.choice(OBJECTS)]}])  # fmt: skip
    method, template = dice.choice(routes())
    known = (workload_id("red", "mine"), "red-cq", "company", "batch-1", "Tenant", "red/batch",
             "submissions", "1", "ClusterQueue", "red")  # fmt: skip
    parts = [
        str(dice.choice(known) if dice.random() < 0.6 else grammar.odd()) if "{" in part else part
        for part in template.split("/")
    ]
    query = {
        dice.choice(QUERIES): str(grammar.odd()) if dice.random() < 0.7 else "1"
        for _ in range(dice.randrange(4))
    }
    asked = {"method": method, "path": "/" + "/".join(parts), "query": query,
             "as": dice.choice(("admin", "red")), "body": grammar.text(),
             "base64": dice.random() < 0.1}  # fmt: skip
    if dice.random() < 0.1:
        asked["body"] = dice.choice(("", "[]", "null", "1", '"x"', "{", "\ud800"))
    return json.dumps(asked)


def text_of(value: Any) -> str:
    """JSON without half surrogates, which no URL holds."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()


def read_request(text: Text) -> None:
    desk = Desk()
    desk.send(native("mine", 1, key="mine"))
    asked = json.loads(text)
    signer = SENDERS[asked["as"]]
    body = asked["body"] if asked["method"] in ("POST", "DELETE") else None
    path, query = (json.loads(text_of(asked[part])) for part in ("path", "query"))
    event = request(asked["method"], path, signer, body, **query)
    desk.ask(event | {"isBase64Encoded": asked["base64"]})
    desk.ask(request("GET", "/identity", ADMIN))


def answers(dice: Random) -> Text:
    token = f"{workload_id('red', 'one')}.0.licence.v2"
    envelope = {
        "version": "0", "id": "x", "detail-type": "Admission Check Answered",
        "source": "licence.server", "account": ACCOUNT,
        "detail": {"token": token, "state": "Ready", "message": "seat 4"},
    }  # fmt: skip
    return Grammar(dice, WORDS, [envelope]).text()


def read_answer(text: Text) -> None:
    asks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "licence.v2"}]}}
    answering = tenant("licences", "AROALICENCES", "licences")
    answering["spec"] |= {"eventSources": ["licence.server"], "checks": ["licence.v2"]}
    check = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck",
             "metadata": {"name": "licence.v2"},
             "spec": {"controllerName": "sluice.dev/callback"}}  # fmt: skip
    others = (o for o in COMPANY if o["metadata"]["name"] != "red-cq")
    desk = Desk((*others, cluster_queue("red-cq", 64, **asks), check, answering))
    ids = [desk.send(native(name, 1, key=name), RED) for name in ("one", "two")]
    heard = AnswerByEvent(
        answer=desk.api.answer, catalog=desk.catalog, workloads=desk.workloads,
        timeline=desk.timeline, clock=desk.clock,
    )  # fmt: skip
    bootstrap.answer = lambda: heard
    good = {"detail-type": "Admission Check Answered", "source": "licence.server",
            "account": ACCOUNT, "id": "good",
            "detail": {"token": f"{ids[1]}.0.licence.v2", "state": "Ready"}}  # fmt: skip
    assert answer.handler(sqs(text, good), CONTEXT) == {"batchItemFailures": []}
    desk.settle()
    assert not desk.workloads.rows[ids[1]].gated, "the neighbour's answer is not taken"
