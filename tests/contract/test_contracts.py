"""The contracts are consistent, and a change that would break a reader is refused."""

import ast
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contracts.lock import ROOT, read_lock
from infra.log.contracts import generator
from infra.log.contracts import lock as locking
from infra.log.contracts.generator import render_topics
from infra.log.contracts.lock import problems, reasons
from infra.log.contracts.schemas import ContractError

Change = Callable[[dict[str, Any]], None]
PLACED, CANCELLED = "order/OrderPlaced.avsc", "order/OrderCancelled.avsc"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the contracts, to change."""
    return Path(shutil.copytree(ROOT, tmp_path / "contracts"))


def edit(path: Path, change: Change) -> None:
    schema = json.loads(path.read_text("utf-8"))
    change(schema)
    path.write_text(json.dumps(schema), "utf-8")


def next_version(root: Path, change: Change) -> None:
    """OrderCancelled as it is becomes version 1; the changed one is version 2."""
    shutil.copy(root / CANCELLED, root / "order/OrderCancelled.v1.avsc")
    edit(root / CANCELLED, change)


def field(schema: dict[str, Any], name: str) -> dict[str, Any]:
    lines: dict[str, Any] = next(candidate for candidate in schema["fields"] if candidate["name"] == name)
    return lines


def add(name: str, **more: Any) -> Change:
    return lambda schema: schema["fields"].append({"name": name, "type": "string", **more})


def remove(name: str) -> Change:
    return lambda schema: schema["fields"].remove(field(schema, name))


def retype(name: str, new: Any) -> Change:
    return lambda schema: field(schema, name).update(type=new)


def test_the_committed_contracts_have_no_problem() -> None:
    assert problems() == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            add("channel"),
            "2 cannot read version 1: field channel is missing there and has no default",
        ),
        (
            remove("reason"),
            "1 cannot read version 2: field reason is missing there and has no default",
        ),
        (retype("gross", "string"), "field gross: type mismatch"),
        (retype("units", "long"), "version 1 cannot read version 2: field units: type mismatch"),
        (
            retype("reason", ["null", "string"]),
            "1 cannot read version 2: field reason: type mismatch",
        ),
        (retype("release", {"type": "array", "items": "long"}), "field release: type mismatch"),
        (
            retype("placed_at", {"type": "long", "logicalType": "timestamp-millis"}),
            "field placed_at changed its logical type",
        ),
    ],
)
def test_an_incompatible_version_is_refused_with_field_and_reason(
    root: Path, change: Change, reason: str
) -> None:
    before = (root / locking.LOCK_FILE).read_bytes()
    next_version(root, change)
    with pytest.raises(ContractError, match=reason) as refused:
        locking.lock(root)
    assert "order.events-daybook.order.OrderCancelled" in str(refused.value)
    assert any(reason in line for line in problems(root))
    assert (root / locking.LOCK_FILE).read_bytes() == before


def test_a_field_inside_a_nested_record_is_named_with_its_path() -> None:
    def of(kind: str) -> dict[str, Any]:
        line = {"type": "record", "name": "Line", "fields": [{"name": "price", "type": kind}]}
        lines = {"name": "lines", "type": {"type": "array", "items": line}}
        return {"type": "record", "name": "Order", "fields": [lines]}

    assert reasons(of("int"), of("long")) == [
        "field lines.price: type mismatch (reader type: int not compatible with writer type: long)"
    ]
    assert reasons(of("long"), of("int")) == []


def test_a_lost_enum_symbol_is_refused() -> None:
    def of(*symbols: str) -> dict[str, Any]:
        role = {"type": "enum", "name": "Role", "symbols": symbols}
        return {"type": "record", "name": "Site", "fields": [{"name": "role", "type": role}]}

    assert reasons(of("active"), of("active", "passive")) == [
        "field role: missing enum symbols ({'passive'})"
    ]


def test_compatibility_is_transitive(root: Path) -> None:
    """Version 3 fits version 2 and not version 1: a field that comes back with another type."""
    shutil.copy(root / CANCELLED, root / "order/OrderCancelled.v1.avsc")
    edit(root / "order/OrderCancelled.v1.avsc", add("channel", default=""))
    shutil.copy(root / CANCELLED, root / "order/OrderCancelled.v2.avsc")
    edit(root / CANCELLED, lambda s: s["fields"].append({"name": "channel", "type": "int", "default": 0}))
    (root / locking.LOCK_FILE).unlink()
    with pytest.raises(ContractError) as refused:
        locking.lock(root)
    lines = str(refused.value).splitlines()
    assert [line.partition(": field channel")[0].partition(": ")[2] for line in lines] == [
        "version 1 cannot read version 3",
        "version 3 cannot read version 1",
    ]


def test_a_compatible_version_gets_the_next_id_and_changes_no_other(root: Path) -> None:
    before = read_lock(root / locking.LOCK_FILE)
    next_version(root, add("channel", default=""))
    assert [line for line in problems(root) if "is not locked yet" in line]
    (new,) = locking.lock(root)
    assert generator.write(root) == ["order/events.py", "records.py"]
    after = read_lock(root / locking.LOCK_FILE)
    assert (new.version, new.id) == (2, max(entry.id for entry in before.entries) + 1)
    ids = {(entry.subject, entry.version): entry.id for entry in after.entries}
    assert {(entry.subject, entry.version): entry.id for entry in before.entries}.items() <= ids.items()
    old = after.versions(new.subject)[0]
    assert old.file == "order/OrderCancelled.v1.avsc"
    assert "channel" not in after.text(old.id)
    assert problems(root) == []
    assert locking.lock(root) == []


def test_a_locked_schema_cannot_be_changed(root: Path) -> None:
    edit(root / CANCELLED, add("channel", default=""))
    with pytest.raises(ContractError, match=r"Keep the old schema as order/OrderCancelled\.v1\.avsc"):
        locking.lock(root)
    assert "was changed since" in problems(root)[0]


def test_documentation_may_change_under_the_same_id(root: Path) -> None:
    edit(root / CANCELLED, lambda schema: schema.update(doc="Words."))
    assert locking.lock(root) == []
    assert generator.write(root) == ["order/events.py"]
    assert problems(root) == []


def test_a_locked_version_cannot_go_away(root: Path) -> None:
    (root / "order/OrderPlaced.v1.avsc").unlink()
    assert any("is locked, but its schema is gone" in line for line in problems(root))


def test_versions_have_no_gap(root: Path) -> None:
    (root / "order/OrderPlaced.v1.avsc").rename(root / "order/OrderPlaced.v3.avsc")
    with pytest.raises(ContractError, match="order/OrderPlaced: the versions must be"):
        problems(root)


def test_a_stale_class_is_seen(root: Path) -> None:
    path = root / "order/events.py"
    path.write_text(path.read_text("utf-8").replace("gross: int", "gross: float"), "utf-8")
    assert problems(root) == [
        "contracts/order/events.py is not what the schemas say: run `./daybook contracts lock`"
    ]


def test_a_stale_encoder_is_seen(root: Path) -> None:
    path = root / "records.py"
    path.write_text(path.read_text("utf-8").replace("int32(record.units)", "long(record.units)"), "utf-8")
    assert problems(root) == [
        "contracts/records.py is not what the schemas say: run `./daybook contracts lock`"
    ]


def test_no_code_is_made_at_run_time() -> None:
    """What runs can be read, checked and found in a stack trace."""
    made = [
        f"{module.relative_to(ROOT.parent)}:{node.lineno}"
        for folder in (ROOT, ROOT.parent / "services")
        for module in folder.rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text("utf-8")))
        if isinstance(node, ast.Name) and node.id in ("exec", "eval", "compile")
    ]
    assert made == []


def test_catalogue_and_schemas_must_match(root: Path) -> None:
    shutil.copy(root / CANCELLED, root / "order/OrderForgotten.avsc")
    edit(root / "order/OrderForgotten.avsc", lambda schema: schema.update(name="OrderForgotten"))
    catalogue = (root / "topics.yaml").read_text("utf-8")
    (root / "topics.yaml").write_text(catalogue.replace("order/PlaceOrder", "order/PlaceOder"), "utf-8")
    lines = problems(root)
    assert (
        "topics.yaml: order.commands lists order/PlaceOder, but contracts/order/PlaceOder.avsc does not exist"
        in lines
    )
    assert any("contracts/order/OrderForgotten.avsc stands in no topic" in line for line in lines)


def test_two_packages_cannot_define_one_name(root: Path) -> None:
    shutil.copy(root / CANCELLED, root / "inventory/OrderCancelled.avsc")
    edit(root / "inventory/OrderCancelled.avsc", lambda schema: schema.update(namespace="daybook.inventory"))
    catalogue = (root / "topics.yaml").read_text("utf-8")
    line = "inventory/StockReceived"
    (root / "topics.yaml").write_text(
        catalogue.replace(line, f"{line}, inventory/OrderCancelled", 1), "utf-8"
    )
    with pytest.raises(ContractError, match="two packages define OrderCancelled"):
        generator.generate(root)


def test_every_service_has_the_same_kinds_of_topics() -> None:
    with pytest.raises(ContractError, match="different kinds"):
        render_topics(["a.commands", "a.events", "b.commands"])


def test_one_schema_in_several_topics_has_one_id() -> None:
    lock = read_lock(ROOT / locking.LOCK_FILE)
    topics = {entry.topic for entry in lock.entries if entry.type == "daybook.kernel.OutcomeBatch"}
    assert topics == {
        f"{service}.{what}"
        for service in ("order", "inventory")
        for what in ("inbox", "commands", "outcomes")
    }
    versions = {entry.version for entry in lock.entries if entry.type == "daybook.kernel.OutcomeBatch"}
    assert len(lock.ids("daybook.kernel.OutcomeBatch")) == len(versions)


def test_a_command_and_an_event_have_one_topic_and_kernel_records_none() -> None:
    lock = read_lock(ROOT / locking.LOCK_FILE)
    assert lock.topic_of("daybook.order.PlaceOrder") == "order.commands"
    assert lock.topic_of("daybook.inventory.StockReserved") == "inventory.events"
    with pytest.raises(KeyError):
        lock.topic_of("daybook.kernel.OutcomeBatch")
