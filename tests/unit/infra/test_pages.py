"""What a page says about its commands is read and compared; the runbook says all of it for each step."""

from __future__ import annotations

import os

import pytest

from tests.pages import StepRun, check, departure, lines_of, run_walk, steps_of, walk

RUNBOOK = "docs/how-to/fail-over.md"
STEPS = """
1. Look.

   ```sh
   echo 'home is active in epoch 2 (5 s)'; WHO=home
   ```

   ```
   home is active in epoch 7 (61.5 s)
   ```

   **Takes** 2 s. **If not**: look again.

2. Use what the first step has set.

   ```bash
   echo "$WHO"
   echo 'and more' >&2
   ```

   ```
   home
   …
   ```

   **Takes** 1 min.
"""
TABLE = """
┏━━━━━━┳━━━━━━━━━┓
┃ step ┃ seconds ┃
┡━━━━━━╇━━━━━━━━━┩
│ done │ 0.31    │
└──────┴─────────┘
"""


def test_a_walk_runs_in_one_shell() -> None:
    steps = steps_of(STEPS)
    assert [(step.seconds, step.complete) for step in steps] == [(2, True), (60, False)]
    runs = run_walk(steps, os.environ)
    check(runs)
    assert [run.output for run in runs] == ["home is active in epoch 2 (5 s)\n", "home\nand more\n"]


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("is active in epoch 7", "is passive in epoch 7", "does not print this line here: home is passive"),
        ("   home\n   …", "   home", "prints more than the page's last line: home"),
        ('echo "$WHO"', "false", "step 2, .*: it ended with 1"),
        ('echo "$WHO"', "sleep 60", "the walk hangs"),
    ],
)
def test_each_difference_is_named(
    before: str, after: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.pages.LEAST_SECONDS", 1.0)
    page = STEPS.replace(before, after).replace("1 min", "0 s").replace("2 s", "0 s")
    with pytest.raises(AssertionError, match=f"(?s){reason}"):
        check(run_walk(steps_of(page), os.environ))


def test_a_step_may_take_ten_times_as_long() -> None:
    step = steps_of(STEPS)[1]
    runs = [StepRun(step, "home\n", 0, seconds) for seconds in (599.0, 601.0)]
    assert [run.difference for run in runs] == ["", "it took 601 s, and the page says 60 s"]


def test_a_table_is_compared_without_its_lines_and_widths() -> None:
    page = lines_of("┃ step ┃ seconds ┃\n│ done │ 12.5 │")
    assert departure(page, TABLE) == ""
    assert "│ done" in departure(page, TABLE.replace("done", "left"))


def test_ids_and_times_stand_for_others() -> None:
    page = ["552e576b-f26c-544d-9746-5b31c4483082 of walk-1 at 2026-11-23T19:31:36.026823Z"]
    assert departure(page, "00000000-0000-5000-8000-00000000000a of walk-2 at 2027-01-01T00:00:00Z\n") == ""
    assert departure(page, "00000000 of walk-2 at 2027-01-01T00:00:00Z\n")


@pytest.mark.parametrize("name", ["planned", "unplanned", "disk"])
def test_every_step_of_the_runbook_states_all_of_it(name: str) -> None:
    assert [step.command for step in walk(RUNBOOK, name) if not step.complete] == []
