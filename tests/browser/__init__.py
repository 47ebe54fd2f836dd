"""`sluice ui` in a real browser, on the control plane in this process."""
