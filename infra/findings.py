"""cdk-nag's AwsSolutions pack over all stacks."""

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks

from infra.acknowledgements import acknowledge


def check_findings(app: cdk.App, *, name: str) -> None:
    """Make synthesis fail on a finding that acknowledgements.py does not explain."""
    acknowledge(app, name=name)
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks())
