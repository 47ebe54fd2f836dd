"""What users and operators may ask."""
