"""What may go wrong with the embedded default, as one small tree."""


class LocalError(Exception):
    """Base: the message says what is wrong and what to do or to look at."""


class PreparationError(LocalError):
    """Something could not be downloaded, installed or built."""


class StartError(LocalError):
    """A part did not become ready."""


class ApplyError(LocalError):
    """The local API server refused a manifest."""


class StackError(LocalError):
    """The stack is not in the state that the request needs."""
