"""Sluice: a serverless batch control plane for EKS."""
