"""Plain values to DynamoDB attribute values and back, with integers kept integers.

boto3's own serializer turns every number into a Decimal and takes a resource-level client.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

Value = dict[str, Any]


def to_value(plain: object) -> Value:
    """Raises TypeError for anything but strings, booleans, numbers, lists, maps and None."""
    match plain:
        case str():
            return {"S": str(plain)}
        case bool():
            return {"BOOL": plain}
        case int() | float():
            return {"N": repr(plain)}
        case None:
            return {"NULL": True}
        case bytes():
            return {"B": plain}
        case Mapping():
            return {"M": {key: to_value(value) for key, value in plain.items()}}
        case list() | tuple():
            return {"L": [to_value(value) for value in plain]}
    raise TypeError(f"no attribute value for {type(plain).__name__}")


def to_plain(value: Value) -> Any:
    ((kind, inner),) = value.items()
    match kind:
        case "N":
            return int(inner) if inner.lstrip("-").isdigit() else float(inner)
        case "M":
            return {key: to_plain(element) for key, element in inner.items()}
        case "L":
            return [to_plain(element) for element in inner]
        case "NULL":
            return None
        case "B":
            return b64decode(inner) if isinstance(inner, str) else inner
    return inner


def to_item(plain: Mapping[str, Any]) -> dict[str, Any]:
    return {key: to_value(value) for key, value in plain.items()}


def from_item(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: to_plain(value) for key, value in item.items()}
