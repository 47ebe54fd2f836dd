"""The launcher's few calls to the API server, against answers as it gives them."""

from local.apply import ApiServer

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "jobsets.jobset.x-k8s.io"},
}
ESTABLISHED = {"conditions": [{"type": "Established", "status": "True"}]}


class Answering(ApiServer):
    """Describes the kind, then gives one status after the other."""

    def __init__(self, *statuses):
        self.resources = {}
        self.statuses = list(statuses)

    def call(self, _method, path, *_):
        if path == "/apis/apiextensions.k8s.io/v1":
            name = "customresourcedefinitions"
            one = {"name": name, "kind": CRD["kind"], "namespaced": False}
            return {"resources": [one]}
        return {"status": self.statuses.pop(0)}


def test_a_condition_is_awaited_from_before_there_are_any() -> None:
    server = Answering({}, {"conditions": None}, {"conditions": []}, ESTABLISHED)

    server.await_condition(CRD, "Established")

    assert server.statuses == []
