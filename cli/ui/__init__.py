"""`sluice ui`: pages in the browser, served on this machine with the caller's own credentials."""
