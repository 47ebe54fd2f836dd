"""The launcher's few calls to the API server, against answers as it gives them."""

import urllib.error
from email.message import Message

from local.apply import ApiServer, apply_all

GROUP = "jobset.x-k8s.io"
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"jobsets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "names": {"kind": "JobSet"},
        "versions": [{"name": "v1alpha1", "served": False}, {"name": "v1alpha2", "served": True}],
    },
}
ITSELF = {"name": "customresourcedefinitions", "kind": DEFINITION["kind"], "namespaced": False}
JOBSETS = {"name": "jobsets", "kind": "JobSet", "namespaced": True}


class Slow(ApiServer):
    """Serves a new kind a while after its definition: first no group, then a group without it."""

    def __init__(self):
        self.resources = {}
        self.asked = 0

    def call(self, method, path, *_):
        if path == "/apis/apiextensions.k8s.io/v1":
            return {"resources": [ITSELF]}
        if method == "PATCH":
            return {}
        assert path == f"/apis/{GROUP}/v1alpha2"
        self.asked += 1
        if self.asked == 1:
            raise urllib.error.HTTPError(path, 404, "Not Found", Message(), None)
        return {"resources": [JOBSETS] if self.asked > 2 else []}


def test_whoever_comes_after_a_definition_finds_its_kind() -> None:
    server = Slow()

    apply_all(server, [DEFINITION])

    assert server.asked == 3
    assert server.resource(f"{GROUP}/v1alpha2", "JobSet") == JOBSETS
