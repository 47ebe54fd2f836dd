"""Airflow: an operator that submits a workload and waits for it, and a sensor.

Needs the extra `airflow` (Airflow 3.1 or newer). docs/how-to/airflow.md shows an example.
"""

from sluice.airflow.operators import SluiceOperator, SluiceSensor
from sluice.airflow.triggers import SluiceTrigger

__all__ = ["SluiceOperator", "SluiceSensor", "SluiceTrigger"]
