"""Kubeflow's training-operator: it makes the pods and Services of PyTorchJobs and their like."""

from pathlib import Path

from sluice.core.jobs.training_operator import CONTROLLER

from local.add_ons.add_on import AddOn, Ports
from local.control_plane import FAST

PROGRAM = "training-operator"
# Not mpijob: Sluice has no row for that version (core/jobs/training_operator.py).
SCHEMES = ("pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob")
# Where a worker waits for its master's name. No program starts before all pods have machines, so
# here there is nothing to wait for; docs/kinds.md has one for clusters whose pods are restricted.
INIT_CONTAINER = """
- name: init-pytorch
  image: {{.InitContainerImage}}
  resources: {requests: {cpu: 50m, memory: 10Mi}, limits: {cpu: 100m, memory: 20Mi}}
  securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
  command: ["true"]
"""


def arguments(folder: Path, ports: Ports) -> tuple[tuple[str, ...], dict[str, str]]:
    template = folder / "init-container.yaml"
    template.write_text(INIT_CONTAINER)
    return (
        *(f"--enable-scheme={scheme}" for scheme in SCHEMES),
        f"--health-probe-bind-address=127.0.0.1:{ports[PROGRAM]}",
        "--metrics-bind-address=0",  # none
        f"--webhook-server-port={ports['training-operator-webhook']}",
        f"--pytorch-init-container-template-file={template}",
        "--zap-devel=false",
        *FAST,
    ), {"WEBHOOK_CERTIFICATE": str(folder)}


ADD_ON = AddOn("kubeflow", PROGRAM, CONTROLLER, arguments, (PROGRAM, "training-operator-webhook"))
