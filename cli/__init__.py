"""The `sluice` command: submit, look, wait, steer, account, operate."""
