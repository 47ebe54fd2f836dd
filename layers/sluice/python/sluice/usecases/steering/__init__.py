"""What users and operators may change."""
