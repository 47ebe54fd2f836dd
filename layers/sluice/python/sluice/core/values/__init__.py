"""Words that every decision uses: quantities, identities, reasons, plain data."""
