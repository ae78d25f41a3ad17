"""The order service: `python -m services.order.service api|worker`."""

from services.order.domain.decider import order_decider
from services.order.domain.state import STATES
from services.order.process import order_process
from services.service import Service

ORDER = Service(
    "order", order_decider, order_process, STATES, api_port=27401, health_port=27428, worker_port=27411
)

if __name__ == "__main__":
    raise SystemExit(ORDER.main())
