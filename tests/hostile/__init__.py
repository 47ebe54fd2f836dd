"""Hostile tenants, nodes and AWS: documents of a grammar, and the real adapters on bad days."""

import os

# Powertools reads the first two when a handler's module is imported.
for _name, _value in {
    "POWERTOOLS_SERVICE_NAME": "sluice",
    "POWERTOOLS_METRICS_NAMESPACE": "Sluice",
    "SLUICE_INTERRUPTIONS_QUEUE": "control-QueuesInterruptions3B99-1",
    "SLUICE_EVENTS_QUEUE": "events-control-QueuesEvents3B99-1",
}.items():
    os.environ.setdefault(_name, _value)
