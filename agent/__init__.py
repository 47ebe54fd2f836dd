"""The node agent: spot notices from IMDS, checkpoints through the local kubelet."""
