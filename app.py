"""The CDK app: `cdk deploy --all` deploys what sluice.yaml describes."""

from pathlib import Path

import aws_cdk as cdk
from sluice.configuration import FILE_NAME, load

from infra.application import add_stacks
from infra.findings import check_findings

app = cdk.App()
configuration = load(app.node.try_get_context("config") or Path(__file__).parent / FILE_NAME)
add_stacks(app, configuration=configuration)
check_findings(app, configuration=configuration)
app.synth()
