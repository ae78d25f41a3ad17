"""Price lists from a folder into the file that Connect follows: whole, in order, never half."""

from pathlib import Path

import pytest

from infra.stack.compose.intake import HEADER, inbox_lines, look, make_folders

LIST = f"{HEADER}\n85123A,acme,1.15,GBP\n\n22423,acme,6.90,GBP\n"


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    make_folders(tmp_path)
    return tmp_path


def rows(lists: Path) -> list[str]:
    """The inbox without the lists' own names."""
    return [line.partition("|")[2] for line in (lists / "inbox").read_text().splitlines()]


def test_a_list_is_appended_line_by_line_and_kept(lists: Path) -> None:
    (lists / "new" / "acme.csv").write_text(LIST)
    look(lists, look(lists, {}))
    assert rows(lists) == ["2|85123A,acme,1.15,GBP|", "4|22423,acme,6.90,GBP|"]
    assert [*(lists / "new").iterdir()] == []
    (kept,) = (lists / "taken").iterdir()
    assert kept.read_text() == LIST
    assert (lists / "inbox").read_text().startswith(f"{kept.name}|2|")


def test_a_list_that_still_grows_is_left_alone(lists: Path) -> None:
    new = lists / "new" / "acme.csv"
    new.write_text(LIST[:40])
    seen = look(lists, {})
    new.write_text(LIST)
    seen = look(lists, seen)
    assert rows(lists) == []
    look(lists, seen)
    assert len(rows(lists)) == 2


def test_two_lists_of_one_name_are_both_kept(lists: Path) -> None:
    for _ in range(2):
        (lists / "new" / "acme.csv").write_text(LIST)
        look(lists, look(lists, {}))
    assert len([*(lists / "taken").iterdir()]) == 2
    assert len(rows(lists)) == 4


@pytest.mark.parametrize("content", [b"", b"Artikel;Preis\n1;2\n", b"\xff\xfe\x00", LIST.encode("utf-16")])
def test_what_is_no_list_is_set_aside_whole(lists: Path, content: bytes) -> None:
    (lists / "new" / "alien.csv").write_bytes(content)
    look(lists, look(lists, {}))
    (aside,) = (lists / "refused").iterdir()
    assert aside.read_bytes() == content
    assert rows(lists) == []


def test_after_a_kill_in_the_midst_of_a_line_the_next_begins_on_its_own(lists: Path) -> None:
    (lists / "inbox").write_text("old|2|85123A,acme,1.1")
    (lists / "new" / "acme.csv").write_text(LIST)
    look(lists, look(lists, {}))
    assert rows(lists) == ["2|85123A,acme,1.1", "2|85123A,acme,1.15,GBP|", "4|22423,acme,6.90,GBP|"]


def test_lines_are_ascii_whatever_the_list_says() -> None:
    written = f"\ufeff{HEADER}\r\nCAF\u00c9,acme,1,GBP\r\n".encode()
    assert inbox_lines("a", written) == "a|2|CAF\\xc9,acme,1,GBP|\n"
