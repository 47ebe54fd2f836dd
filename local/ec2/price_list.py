"""The price list of the embedded EC2: `pricing:GetProducts` over the prices that it sells at."""

import json
from collections.abc import Mapping
from typing import Any

from local.ec2.market import Prices

GET_PRODUCTS = "AWSPriceListService.GetProducts"
SERVICE = "AmazonEC2"


def products(prices: Prices, region: str, question: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to GetProducts: the Linux product, on demand, of the type that is asked for.

    Raises ValueError for a question that only the whole list could answer. Source of the shape:
    the AWS Price List, of which this has the fields that name a product and its price.
    """
    asked = {each["Field"]: each["Value"] for each in question.get("Filters", ())}
    kind = asked.get("instanceType")
    if question.get("ServiceCode") != SERVICE or kind is None:
        raise ValueError(f"here are only prices of {SERVICE}, one instanceType at a time")
    attributes = {
        "instanceType": kind,
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }
    sold = prices.offer(kind) and asked.items() <= attributes.items()
    found = [json.dumps(_product(attributes, prices.on_demand(kind)))] if sold else []
    return {"FormatVersion": "aws_v1", "PriceList": found}


def _product(attributes: Mapping[str, str], price: float) -> dict[str, Any]:
    sku = attributes["instanceType"]
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{price:.10f}"}}
    term = {"sku": sku, "priceDimensions": {f"{sku}.hourly": dimension}}
    return {
        "serviceCode": SERVICE,
        "product": {"sku": sku, "attributes": dict(attributes)},
        "terms": {"OnDemand": {f"{sku}.on-demand": term}},
    }
