"""Settings of all tests: how fast a machine happens to be decides nothing."""

from hypothesis import settings

settings.register_profile("any-machine", deadline=None)
settings.load_profile("any-machine")
