"""One module per verb or per family of verbs; each is imported only when it is asked for."""
