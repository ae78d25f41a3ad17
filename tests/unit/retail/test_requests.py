"""Steps as HTTP: paths, keys and bytes that the APIs accept and that never change."""

import msgspec
from pydantic import BaseModel

from infra.lab.load.clients import Api, Request
from infra.lab.retail.steps import request_of
from services.inventory import api as inventory
from services.order import api as order
from tests.unit.retail.sheet import ALWAYS, book

LIFE = """
    540000,A1,MUG,10,2010-12-01 09:00:00,0.001,7.0,France
    540000,D,Discount,1,2010-12-01 09:00:00,-4.50,7.0,France
    540001,A1,,-1,2010-12-02 09:00:00,0.0,,France
    C540006,A1,MUG,-2,2010-12-09 09:00:00,1.00,7.0,France
    540010,A1,MUG,1,2010-12-11 09:00:00,2.00,7.0,France
    C540011,A1,MUG,-1,2010-12-11 09:20:00,2.00,7.0,France
"""
SHAPES: dict[str, type[BaseModel]] = {
    "order": order.OrderRequest,
    "shipment": order.ShipmentRequest,
    "cancellation": order.CancellationRequest,
    "return": order.ReturnRequest,
    "receipt": inventory.ReceiptRequest,
    "adjustment": inventory.AdjustmentRequest,
}


def requests() -> list[Request]:
    return [request_of(step) for step in book(LIFE).load(ALWAYS).steps()]


def test_every_kind_of_step_is_what_the_apis_read() -> None:
    made = requests()
    assert {request.kind for request in made} == SHAPES.keys()
    for request in made:
        SHAPES[request.kind].model_validate_json(request.body)


def test_an_order_in_full() -> None:
    placed = next(request for request in requests() if request.kind == "order")
    assert (placed.api, placed.path, placed.key) == (Api.ORDER, "/orders", "order-540000")
    assert (placed.entity, placed.settles, placed.correlation) == ("540000", True, "retail:order-540000")
    assert msgspec.json.decode(placed.body) == {
        "order_id": "540000",
        "customer_id": "7",
        "country": "France",
        "currency": "GBP",
        "occurred_at": "2010-12-01T09:00:00Z",
        "lines": [{"sku": "A1", "quantity": 10, "unit_price": "0.001"}],
        "charges": [{"code": "D", "amount": "-4.50"}],
    }


def test_keys_come_from_the_data_s_own_numbers() -> None:
    assert [(request.path, request.key) for request in requests()] == [
        ("/stock/A1/receipts", "delivery-2010-12"),
        ("/stock/A1/adjustments", "count-540001"),
        ("/orders", "order-540000"),
        ("/orders/540000/shipment", "shipment"),
        ("/orders/540000/returns", "return-C540006"),
        ("/orders", "order-540010"),
        ("/orders/540010/cancellation", "cancel-C540011"),
    ]
