"""The inventory service: `python -m services.inventory.service api|worker`."""

from services.inventory.domain.decider import stock_decider
from services.inventory.domain.state import Stock
from services.inventory.process import inventory_process
from services.service import Service

INVENTORY = Service(
    "inventory",
    stock_decider,
    inventory_process,
    (Stock,),
    api_port=27402,
    health_port=27496,
    worker_port=27412,
)

if __name__ == "__main__":
    raise SystemExit(INVENTORY.main())
