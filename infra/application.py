"""Puts the stacks together."""

import aws_cdk as cdk
from constructs import Construct
from sluice.configuration import Configuration

from infra.cluster_access import ClusterAccessStack
from infra.code import require_matching_interpreter
from infra.control import ControlStack
from infra.observability import ObservabilityStack
from infra.state import StateStack


def add_stacks(scope: Construct, *, configuration: Configuration) -> None:
    """Add State, Control, Observability, and one ClusterAccess for each imported cluster."""
    require_matching_interpreter(configuration.runtime)
    environment = cdk.Environment(region=configuration.region) if configuration.region else None
    state = StateStack(
        scope,
        "State",
        stack_name=f"{configuration.name}-state",
        configuration=configuration,
        env=environment,
    )
    control = ControlStack(
        scope,
        "Control",
        stack_name=f"{configuration.name}-control",
        configuration=configuration,
        state=state,
        env=environment,
    )
    ObservabilityStack(
        scope,
        "Observability",
        stack_name=f"{configuration.name}-observability",
        configuration=configuration,
        state=state,
        control=control,
        env=environment,
    )
    for cluster in configuration.clusters:
        # A stack's name knows no underscore, a cluster's does.
        suffix = cluster.name.replace("_", "-")
        ClusterAccessStack(
            scope,
            f"ClusterAccess-{cluster.name}",
            stack_name=f"{configuration.name}-cluster-access-{suffix}",
            configuration=configuration,
            cluster=cluster,
            state=state,
            control=control,
            env=environment,
        )
