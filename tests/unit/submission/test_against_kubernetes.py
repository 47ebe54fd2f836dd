"""The real API server agrees: it takes what we render, and refuses what we refuse."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from sluice.core.config.tenants import PodSecurity
from sluice.core.intake import pod_security
from sluice.core.intake.submission import Accepted

from tests.unit.submission.builders import a_pod, a_tenant, accepted, rendered
from tests.unit.submission.test_pod_security import PODS, STRICT_PODS
from tests.unit.submission.test_properties import changed_documents, decisions
from tests.unit.submission.test_schema import EXAMPLES

pytestmark = pytest.mark.stack
PATHS = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Pod": "/api/v1/namespaces/{}/pods",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
}

# The API server takes ephemeral containers for running pods only.
SUBMITTABLE = [case for case in PODS + STRICT_PODS if "ephemeralContainers" not in case[0]]


def refusals(api_server, objects, namespace):
    """Why objects, and the pods of their Jobs, could not be created in a namespace."""
    found = []
    for made in copy.deepcopy(objects):
        if made["kind"] not in PATHS:
            continue
        if "namespace" in made["metadata"]:
            made["metadata"]["namespace"] = namespace
        found.append(api_server.refusal(PATHS[made["kind"]].format(namespace), made))
        if made["kind"] == "Job":
            found.append(refusal_of_pod(api_server, made["spec"]["template"], namespace))
    return [refusal for refusal in found if refusal]


def refusal_of_pod(api_server, template, namespace):
    metadata = template.get("metadata", {}) | {"name": "pod"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    return api_server.refusal(PATHS["Pod"].format(namespace), pod)


@pytest.mark.parametrize("document", EXAMPLES)
def test_the_examples_are_taken_under_the_strictest_standard(api_server, document):
    objects = rendered(accepted(document, a_tenant(buckets=("team-blue-data/*",))))

    assert refusals(api_server, objects, "restricted") == []


@pytest.mark.parametrize("level", ["baseline", "restricted"])
@pytest.mark.parametrize(("fields", "path"), SUBMITTABLE)
def test_our_standards_are_those_of_kubernetes(api_server, fields, path, level):
    pod = a_pod(**copy.deepcopy(fields))
    pod_security.harden(pod, PodSecurity.RESTRICTED)

    ours = pod_security.violations(pod, PodSecurity(level), "pod")
    theirs = refusal_of_pod(api_server, {"spec": pod}, level)

    assert bool(ours) == bool(theirs), theirs
    # Some of these pods are not even valid, and the standard is not asked.
    valid = not refusal_of_pod(api_server, {"spec": pod}, "privileged")
    assert not (ours and valid) or "violates PodSecurity" in theirs


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(changed_documents())
def test_the_pod_security_of_whatever_we_accept_is_taken(api_server, document):
    for decision in decisions(json.dumps(document)):
        if isinstance(decision, Accepted):
            told = refusals(api_server, rendered(decision), "restricted")
            assert not [refusal for refusal in told if "violates PodSecurity" in refusal]
            assert not [refusal for refusal in told if "strict decoding error" in refusal]
