"""cdk-nag's AwsSolutions pack over all stacks."""

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks
from sluice.configuration import Configuration

from infra.acknowledgements import acknowledge


def check_findings(app: cdk.App, *, configuration: Configuration) -> None:
    """Make synthesis fail on a finding that acknowledgements.py does not explain."""
    acknowledge(app, configuration=configuration)
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks())
