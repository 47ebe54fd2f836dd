"""CDK stacks, by lifetime."""
