"""MigrationRequests of workloads off dying machines."""
