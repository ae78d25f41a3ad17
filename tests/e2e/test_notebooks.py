"""Runs every cell of the notebooks on a loaded shop, and JupyterLab as `daybook notebook` starts it."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import httpx
import nbformat
import pytest
from nbclient import NotebookClient

from infra.base.ports import HOST
from infra.cli.audit import marts_location
from infra.cli.notebook import NOTEBOOKS, notebook_environment
from infra.lab.retail.load_history import read_loaded
from tests.e2e.shop import SECONDS, Shop
from tests.ports import free_ports

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
ADDRESS = re.compile(r"(http://\S+)/lab\?token=(\w+)")
# Appended to each notebook as its last cell: checks the values that its pictures show.
PROOFS = {
    "01_tour": """
assert events > 1_000 and set_aside == 0
assert list(life["type"][:1]) == ["OrderPlaced"] and "StockReserved" in set(life["type"])
assert sold > refunded > 0 and closes_as_it_opens
assert list(funnel) == sorted(funnel, reverse=True)
assert states.iloc[:, 0].sum() < states.iloc[:, 1].sum() == funnel["placed"]
""",
    "02_audit": """
assert verdict.identical and verdict.events > 1_000
assert {"orders", "stock", "sales_daily", "expected orders"} <= {part.kind for part in verdict.comparisons}
assert (worth["log"] == worth["read_model"]).all() and len(worth) == verdict.comparisons[0].keys
assert found.differing == 3 and list(named.index) == sorted(victims)
""",
    "03_what_if": """
assert faithful and really_rejected
assert 0 < given < paid.sum()
assert (policies["all or nothing"] <= policies["what is there"]).all()
assert list(policies["what is there"]) == sorted(policies["what is there"], reverse=True)
assert policies.loc[1.0, "what is there"] == 1 and policies.loc[0.5, "orders rejected"] > 0.1
""",
    "04_sql": """
assert {"orders", "customer_cohorts", "order_placed", "calendar", "articles"} <= set(tables["name"])
assert len(best) == 10 and (best["article"].str.len() > 8).sum() > 5, "they have names"
assert (share[0] == 1).all() and share.max(axis=None) == 1
assert hours["orders"].sum() == placed > 30
assert by_pandas == by_sql > 0
""",
}


@pytest.fixture(scope="module")
def loaded(shop: Shop) -> Shop:
    """A shop with orders, also if only these tests run."""
    if not read_loaded(shop.settings.home):
        shop.run("load", "--from", "2010-12-21", "--to", "2010-12-22")
    return shop


def publish(shop: Shop) -> None:
    """Makes what is read without Spark: a lake, marts, and the file of articles."""
    shop.run("analytics", "lake", "update")
    if not Path(marts_location(shop.settings), "customer_cohorts").exists():
        shop.run("analytics", "run", "--from", "lake")
    shop.run("sql", "SHOW TABLES")


QUICK = "01_tour"
CASES = [pytest.param(name, marks=[] if name == QUICK else [pytest.mark.full]) for name in PROOFS]


@pytest.mark.parametrize("name", CASES)
def test_every_cell_runs_and_what_it_shows_is_so(loaded: Shop, name: str) -> None:
    if name == "04_sql":
        publish(loaded)
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(PROOFS[name]))
    client = NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(NOTEBOOKS)}})
    environment = {**os.environ, **notebook_environment(loaded.settings), "DAYBOOK_SPARK_MASTER": "local[2]"}
    client.execute(env=environment)
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in shown), "no picture"


@pytest.fixture
def lab(loaded: Shop) -> Iterator[Popen[str]]:
    process = loaded.start("notebook", "--no-browser", "--port", str(free_ports(1)[0]))
    yield process
    process.terminate()
    process.communicate(timeout=SECONDS)


def test_jupyterlab_opens_on_the_notebooks_for_who_has_the_token(lab: Popen[str]) -> None:
    assert lab.stdout is not None
    address = next(match for line in lab.stdout if (match := ADDRESS.search(line)))
    url, token = address.groups()
    assert url.startswith(f"http://{HOST}:")
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        assert client.get("/api/contents").status_code == 403
        listed = client.get("/api/contents", headers={"Authorization": f"token {token}"})
    assert {f"{name}.ipynb" for name in PROOFS} <= {entry["name"] for entry in listed.json()["content"]}
