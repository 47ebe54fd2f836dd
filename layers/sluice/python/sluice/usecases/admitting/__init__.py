"""From a document to quota: what `submit` and `admit` do."""
