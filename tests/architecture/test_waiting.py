"""Only `infra.base.waiting` polls: elsewhere a `while` that sleeps is refused.

What stands below is no polling for an end (a process's main loop, a clock that paces a load), or stands in a room
that may not import `infra`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("contracts", "services", "analytics", "infra", "tests")
THE_ONE = ("infra/base/waiting.py", "tests/waiting.py")  # the second for coroutines
SLEEPS = {"time.sleep", "asyncio.sleep", "sleep"}
# file: functions
MAIN_LOOPS = {
    "infra/cli/inspect.py": {"_appended"},
    "infra/dr/guard.py": {"_watch_for_ever"},
    "infra/dr/mirror_watch.py": {"run"},
    "infra/lab/drills/cluster/copier.py": {"main"},
    "infra/stack/compose/intake.py": {"main"},
    "infra/stack/compose/storage.py": {"follow"},
    "infra/router/router.py": {"_follow", "_sweep"},
    "infra/stack/link.py": {"run", "_deliver"},
    "infra/stack/embedded/supervisor.py": {"_await_ready", "_watch"},
    "services/kernel/log/proof.py": {"_contact", "_compare"},
    "services/kernel/worker/broker_monitor.py": {"run"},
    "services/projection/engine/lag.py": {"follow"},
    "services/projection/status.py": {"follow"},
    "services/projection/engine/visibility.py": {"listen"},
    "tests/bench/peers/relay.py": {"main"},
}
CLOCKS = {
    "infra/lab/load/clients.py": {"send"},
    "tests/bench/generator.py": {"pace", "run"},
    "tests/bench/p10_memory.py": {"_under_load"},
    "tests/hostile/crowd.py": {"run"},
}
# Without `infra`: the services' image has little of it, and nothing of the analytics' code leaves its room. The bar of
# `up` has no bound: a person watches it.
NO_INFRA = {
    "analytics/offsets.py": {"wait_until_read"},
    "infra/stack/embedded/platform.py": {"_started"},
    "services/kernel/log/reader.py": {"once_settled"},
    "services/kernel/worker/worker.py": {"_why_fenced"},
    "services/projection/engine/projection.py": {
        "_apply_decisions",
        "_wait_for_database",
    },  # the first is a main loop
    "services/projection/engine/source.py": {"started"},
}


def polling(source: str) -> Iterator[str]:
    """The names of the functions that sleep in a `while`; `<module>` outside of any."""

    def walk(node: ast.AST, function: str, looping: bool) -> Iterator[str]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function, looping = node.name, False
        looping = looping or isinstance(node, ast.While)
        if looping and isinstance(node, ast.Call) and ast.unparse(node.func) in SLEEPS:
            yield function
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function, looping)

    yield from walk(ast.parse(source), "<module>", False)


def test_nothing_else_polls() -> None:
    pollers: dict[str, set[str]] = {}
    for room in ROOMS:
        for module in sorted((ROOT / room).rglob("*.py")):
            name = str(module.relative_to(ROOT))
            if name not in THE_ONE and (functions := set(polling(module.read_text()))):
                pollers[name] = functions
    assert pollers == {**MAIN_LOOPS, **CLOCKS, **NO_INFRA}


@pytest.mark.parametrize("call", ["time.sleep(1)", "await asyncio.sleep(1)", "sleep(0.1)"])
def test_a_planted_loop_is_seen(call: str) -> None:
    body = f"if late():\n            raise TimeoutError\n        {call}\n"
    planted = f"async def waits():\n    while not done():\n        {body}"
    assert set(polling(planted)) == {"waits"}
    assert list(polling(f"async def paces():\n    {call}\n    while more():\n        work()\n")) == []
