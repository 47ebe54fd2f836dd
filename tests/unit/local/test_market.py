"""What the embedded market sells, at what price, and what it says when it has none."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from sluice.adapters.ec2_prices import EC2Prices

from local.ec2.market import THROTTLED, Closure, Market, Offering, Prices
from local.ec2.price_list import products
from tests.fakes import FakeClock

PRICES = Prices(
    on_demand_per_vcpu={"c5": 0.04, "r5": 0.06},
    on_demand_per_type={"g5.xlarge": 1.0},
    spot_share={"us-east-1a": 0.5, "us-east-1b": 0.25},
    spot_share_elsewhere=0.4,
    vcpus={"c5.xlarge": 4, "r5.xlarge": 4, "g5.xlarge": 4},
)
CHEAP = Offering("c5.xlarge", "us-east-1b", "spot")
DEARER = Offering("c5.xlarge", "us-east-1a", "spot")
DEAREST = Offering("c5.xlarge", "us-east-1a", "on-demand")
OFFERINGS = [DEAREST, DEARER, CHEAP]


def closed(
    instance_type=None, zone=None, capacity_type=None, error="InsufficientInstanceCapacity", until=9
):
    return Closure(instance_type, zone, capacity_type, error, until)


@pytest.mark.parametrize(
    ("offering", "dollars"),
    [
        (DEAREST, 0.16),
        (DEARER, 0.08),
        (CHEAP, 0.04),
        (Offering("c5.xlarge", "us-east-1f", "spot"), 0.064),
        (Offering("g5.xlarge", "us-east-1a", "on-demand"), 1.0),
    ],
)
def test_an_offering_costs_its_share_of_the_on_demand_price(offering, dollars) -> None:
    assert PRICES.of(offering) == pytest.approx(dollars)


def test_a_type_without_a_price_is_not_on_offer() -> None:
    assert PRICES.offer("c5.xlarge")
    assert PRICES.offer("g5.xlarge")
    assert not PRICES.offer("g5.2xlarge")
    assert not PRICES.offer("p4d.24xlarge")


def test_the_cheapest_offering_is_taken() -> None:
    choice = Market(PRICES).choose(OFFERINGS, now=0)

    assert choice.taken == CHEAP
    assert choice.refused == ()


def test_a_sold_out_offering_is_named_and_the_next_one_taken() -> None:
    market = Market(PRICES)
    market.close(closed(zone="us-east-1b", capacity_type="spot"))

    choice = market.choose(OFFERINGS, now=0)

    assert choice.taken == DEARER
    (refused,) = choice.refused
    assert refused.offering == CHEAP
    assert refused.code == "InsufficientInstanceCapacity"
    assert "us-east-1b" in refused.message


def test_dearer_offerings_that_were_not_tried_are_not_named() -> None:
    market = Market(PRICES)
    market.close(closed(capacity_type="on-demand"))

    assert market.choose(OFFERINGS, now=0).refused == ()


def test_nothing_is_taken_when_all_is_sold_out() -> None:
    market = Market(PRICES)
    market.close(closed(error="MaxSpotInstanceCountExceeded", capacity_type="spot"))
    market.close(closed(error="VcpuLimitExceeded", capacity_type="on-demand"))

    choice = market.choose(OFFERINGS, now=0)

    assert choice.taken is None
    assert [refused.code for refused in choice.refused] == [
        "MaxSpotInstanceCountExceeded",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
    ]


def test_an_offering_is_back_when_its_time_is_over() -> None:
    market = Market(PRICES)
    market.close(closed(until=9))

    assert market.choose(OFFERINGS, now=8.9).taken is None
    assert market.choose(OFFERINGS, now=9).taken == CHEAP


def test_reopening_brings_everything_back() -> None:
    market = Market(PRICES)
    market.close(closed())
    market.reopen()

    assert market.choose(OFFERINGS, now=0).taken == CHEAP


def test_throttling_refuses_calls_and_no_offering() -> None:
    market = Market(PRICES)
    market.close(closed(error=THROTTLED, until=5))

    assert market.throttled(now=4)
    assert not market.throttled(now=5)
    assert market.choose(OFFERINGS, now=4).taken == CHEAP


def test_an_unknown_refusal_is_itself_refused() -> None:
    with pytest.raises(ValueError, match=r"NoMoreMachines.*InsufficientInstanceCapacity"):
        closed(error="NoMoreMachines")


def test_the_price_list_of_the_repository_prices_every_type_that_it_offers() -> None:
    from pathlib import Path

    from local import ec2

    path = Path(ec2.__file__).with_name("prices.json")
    prices = Prices.read(path, vcpus={"c5.4xlarge": 16, "m6i.large": 2})

    assert prices.on_demand("c5.4xlarge") == pytest.approx(0.68)
    assert prices.on_demand("m6i.large") == pytest.approx(0.096)
    assert prices.on_demand("g5.xlarge") == pytest.approx(1.006)
    assert all(0 < share < 1 for share in prices.spot_share.values())


def hourly(instance_type: str, region: str = "eu-central-1") -> float | None:
    """What the control plane learns of the price list of the EC2 of a region."""
    listed = SimpleNamespace(get_products=lambda **asked: products(PRICES, "eu-central-1", asked))
    prices = EC2Prices(None, listed, region, FakeClock())
    return prices.hourly(instance_type, f"{region}a", "on-demand")


def test_the_price_list_tells_what_the_market_sells_at() -> None:
    assert hourly("c5.xlarge") == pytest.approx(0.16)
    assert hourly("g5.xlarge") == pytest.approx(1.0)


def test_the_price_list_knows_no_price_of_what_is_not_sold_or_elsewhere() -> None:
    assert hourly("p4d.24xlarge") is None
    assert hourly("c5.xlarge", region="us-east-1") is None


def a_product(option: str, dollars: str) -> str:
    """A product as the price list of AWS describes it, shortened to what names it and its price."""
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": dollars}}
    return json.dumps(
        {
            "product": {"attributes": {"instanceType": "p5.48xlarge", "marketoption": option}},
            "terms": {"OnDemand": {"t": {"priceDimensions": {"d": dimension}}}},
        }
    )


@pytest.mark.parametrize(
    ("listed", "price"),
    [
        ([("CapacityBlock", "0.0000000000"), ("OnDemand", "98.3200000000")], 98.32),
        ([("CapacityBlock", "0.0000000000")], None),
    ],
    ids=["beside a Capacity Block", "as a Capacity Block only"],
)
def test_no_machine_is_free(listed: list[tuple[str, str]], price: float | None) -> None:
    questions: list[Any] = []

    def get_products(**question: Any) -> dict[str, Any]:
        questions.append(question)
        return {"PriceList": [a_product(*product) for product in listed]}

    prices = EC2Prices(None, SimpleNamespace(get_products=get_products), "us-east-1", FakeClock())

    assert prices.hourly("p5.48xlarge", "us-east-1a", "on-demand") == price
    (question,) = questions
    option = {"Type": "TERM_MATCH", "Field": "marketoption", "Value": "OnDemand"}
    assert option in question["Filters"]


def test_the_price_list_says_which_questions_it_understands() -> None:
    with pytest.raises(ValueError, match="one instanceType at a time"):
        products(PRICES, "us-east-1", {"ServiceCode": "AmazonEC2", "Filters": []})
