"""An operator that submits a workload and waits for it, and a sensor for one that is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.exceptions import AirflowException, AirflowFailException
from airflow.sdk import BaseOperator, BaseSensorOperator

from sluice.airflow.attempts import AttemptKeys
from sluice.airflow.triggers import SluiceTrigger
from sluice.client.client import Client
from sluice.client.documents import Source, read
from sluice.client.errors import (
    RequestRefusedError,
    SluiceClientError,
    UsageError,
    WorkloadOutcomeError,
)
from sluice.client.exit_codes import ExitCode
from sluice.client.results import WorkloadStatus
from sluice.client.submitting import prepare

if TYPE_CHECKING:
    from airflow.sdk import Context

    from sluice.client.documents import Submission

LASTING = (RequestRefusedError, UsageError)
"""What a retry would be refused for too."""


class SluiceOperator(BaseOperator):
    """Submits one document and ends as its workload does.

    `document`: a Workload, Job, JobSet or other kind as a mapping, or the path of a file with one
    (templated). `namespace`: for a document without one; by default the caller's home.

    A task that runs again (its worker or the scheduler died) finds its workload instead of
    submitting another; the retry of one that failed submits anew. Ending the task cancels the
    workload. Returns `{"id", "phase", "cost_usd"}` as XCom. Credentials: boto3's own chain,
    or `profile`.
    """

    template_fields: Sequence[str] = ("document", "namespace")
    template_ext: Sequence[str] = ()
    ui_color = "#d7e8f7"

    def __init__(
        self,
        *,
        document: Mapping[str, Any] | str,
        namespace: str | None = None,
        profile: str | None = None,
        api_url: str | None = None,
        deferrable: bool = True,
        poll_seconds: float = 10.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.document = document
        self.namespace = namespace
        self.profile = profile
        self.api_url = api_url
        self.deferrable = deferrable
        self.poll_seconds = poll_seconds
        self.workload = ""

    def execute(self, context: Context) -> dict[str, Any]:
        client = self._client()
        try:
            self.workload = self._submit(client, context)
        except LASTING as error:
            raise AirflowFailException(_with_places(error)) from error
        if self.deferrable:
            self.defer(
                trigger=SluiceTrigger(
                    workload=self.workload,
                    poll_seconds=self.poll_seconds,
                    profile=self.profile,
                    api_url=self.api_url,
                ),
                method_name="resume",
            )
        # Recorded when it is running or over; only then is there a log to follow.
        client.wait(self.workload, goal="running")
        return self._end(client, follow=True)

    def resume(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Goes on when the trigger has seen the end."""
        self.workload = str(event["workload"])
        return self._end(self._client(), follow=False)

    def on_kill(self) -> None:
        if self.workload:
            self._client().cancel(self.workload, reason="its Airflow task was ended")

    def _client(self) -> Client:
        return Client(profile=self.profile, api_url=self.api_url)

    def _submit(self, client: Client, context: Context) -> str:
        """The id of the workload of this task instance, submitted if there is none."""
        task: Any = context["ti"]
        tried = AttemptKeys.of(task, int(self.retries or 0))
        source = _source(self.document)
        candidates = [self._prepared(client, source, key) for key in tried.keys]
        ids = [each.id for each in candidates]
        found = client.connection.api.get("workloads", ids=",".join(ids))["items"]
        known = {each["id"]: WorkloadStatus.from_api(each) for each in found}
        attempt = tried.current(ids, known)
        identity = ids[attempt]
        if identity in known and known[identity].phase != "REJECTED":
            self.log.info("workload %s is there: %s", identity, known[identity].phase)
            return identity
        sent = client.submit(
            source.document,
            namespace=self.namespace,
            idempotency_key=tried.keys[attempt],
        )
        self.log.info("submitted workload %s (%s in %s)", sent.id, sent.name, sent.namespace)
        return sent.id

    def _prepared(self, client: Client, source: Source, key: str) -> Submission:
        namespace = self.namespace
        given = None if namespace is None else (lambda: namespace)
        return prepare(client.connection, source, key=key, namespace=given)

    def _end(self, client: Client, *, follow: bool) -> dict[str, Any]:
        """The logs of the workload in the task's own, and its outcome."""
        for each in client.logs(self.workload, follow=follow):
            for line in each.text.splitlines():
                self.log.info("%s%s", f"[{each.source}] " if each.source else "", line)
        status = client.wait(self.workload)
        require_success(status)
        return {"id": status.id, "phase": status.phase, "cost_usd": status.cost_usd}


class SluiceSensor(BaseSensorOperator):
    """Waits until a workload, named by id or unique name, is admitted, running or finished.

    Fails if a finished one did not succeed. It cancels nothing.
    """

    template_fields: Sequence[str] = ("workload",)

    def __init__(
        self,
        *,
        workload: str,
        goal: str = "finished",
        profile: str | None = None,
        api_url: str | None = None,
        deferrable: bool = True,
        poll_seconds: float = 10.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poll_seconds, **kwargs)
        self.workload = workload
        self.goal = goal
        self.profile = profile
        self.api_url = api_url
        self.deferrable = deferrable
        self.poll_seconds = poll_seconds

    def execute(self, context: Context) -> Any:
        if not self.deferrable:
            return super().execute(context)
        return self.defer(
            trigger=SluiceTrigger(
                workload=self.workload,
                goal=self.goal,
                poll_seconds=self.poll_seconds,
                cancels=False,
                profile=self.profile,
                api_url=self.api_url,
            ),
            method_name="resume",
        )

    def poke(self, context: Context) -> bool:  # noqa: ARG002
        client = Client(profile=self.profile, api_url=self.api_url)
        status = client.wait(self.workload, goal=self.goal, timeout=0)
        if status.ended:
            require_success(status)
        return status.reached(self.goal)

    def resume(self, context: Context, event: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Goes on when the trigger has seen the goal, or the end."""
        client = Client(profile=self.profile, api_url=self.api_url)
        status = client.get(str(event["workload"]))
        if status.ended:
            require_success(status)


def require_success(status: WorkloadStatus) -> None:
    """Fails the task as the workload failed; without a retry where another would fail alike."""
    try:
        status.require_success()
    except WorkloadOutcomeError as error:
        lasting = error.exit_code is ExitCode.WORKLOAD_REJECTED
        failure = AirflowFailException if lasting else AirflowException
        raise failure(_with_places(error)) from error


def _with_places(error: SluiceClientError) -> str:
    places = [f"{each.get('field')}: {each.get('message')}" for each in error.errors]
    return "; ".join([error.message, *places, *([error.hint] if error.hint else [])])


def _source(document: Mapping[str, Any] | str) -> Source:
    if isinstance(document, Mapping):
        return Source("the document", dict(document))
    sources = read([document])
    if len(sources) != 1:
        raise UsageError(f"{document} holds {len(sources)} documents; a task submits one")
    return sources[0]
