"""The `process` node: emulated instances as Kubernetes nodes whose pods are local processes."""
