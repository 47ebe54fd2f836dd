"""What an administrator applies in a cluster: rights of our groups, and guards of the tenants."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from sluice.core.jobs.table import EVERYWHERE

from infra.admission_policy import with_early_pass
from infra.job_kinds import with_kinds

_FOLDER = Path(__file__).parent
_FILES = ("rbac.yaml", "admission-policy.yaml", "placeholders.yaml", "mutation-policy.yaml")
_AGENT = "agent.yaml"
_OF_EVERY_JOB = ("ValidatingAdmissionPolicy", "jobs.sluice.dev")


def cluster_manifest(
    namespaces: Iterable[str],
    agent: Mapping[str, str] = MappingProxyType({}),
    cedana: str = "",
    kinds: Iterable[str] = (),
) -> list[dict[str, Any]]:
    """Return the objects of the files for these tenant namespaces.

    A RoleBinding without a namespace is repeated for each, the kinds of jobs are filled in, and the
    policy that looks at every Job lets the good ones pass early; everything else is as written.
    `agent` fills in IMAGE, DEPLOYMENT and CLUSTER of the node agent; without it there is none.
    `cedana` is the account (NAMESPACE/NAME) that may create restored pods; without it nobody may.
    `kinds` are those of add-ons, beside the kinds of jobs that every cluster has.
    """
    repeated = sorted(namespaces)
    texts = [(_FOLDER / name).read_text(encoding="utf-8") for name in _FILES]
    if agent:
        text = (_FOLDER / _AGENT).read_text(encoding="utf-8")
        for name, value in agent.items():
            text = re.sub(rf"(: |=){name}$", rf"\g<1>{value}", text, flags=re.MULTILINE)
        texts.append(text)
    templates = [template for text in texts for template in yaml.safe_load_all(text)]
    rows = EVERYWHERE.union(kinds)
    documents = [document for template in templates for document in with_kinds(template, rows)]
    if cedana:
        documents = [_with_cedana(document, cedana.replace("/", ":")) for document in documents]
    return [each for document in documents for each in _in_namespaces(document, repeated)]


def _with_cedana(document: dict[str, Any], account: str) -> dict[str, Any]:
    """The guards of tenants' namespaces with the exceptions of `cedana.yaml`."""
    text = (_FOLDER / "cedana.yaml").read_text(encoding="utf-8")
    made = yaml.safe_load(text.replace("ACCOUNT", account)).get(document["metadata"]["name"])
    if document["kind"] != "ValidatingAdmissionPolicy" or made is None:
        return document
    spec = document["spec"]
    exceptions = {each["message"]: each for each in made.get("validations", ())}
    return document | {
        "spec": spec
        | {
            "matchConditions": [*spec["matchConditions"], *made.get("matchConditions", ())],
            "validations": [exceptions.get(each["message"], each) for each in spec["validations"]],
        }
    }


def _in_namespaces(document: dict[str, Any], namespaces: Iterable[str]) -> list[dict[str, Any]]:
    metadata = document["metadata"]
    if (document["kind"], metadata["name"]) == _OF_EVERY_JOB:
        return [with_early_pass(document)]
    if document["kind"] != "RoleBinding" or "namespace" in metadata:
        return [document]
    return [
        document | {"metadata": metadata | {"namespace": namespace}} for namespace in namespaces
    ]
