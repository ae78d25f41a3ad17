"""What the articles of the retail file are called."""

import csv
from collections import Counter, defaultdict
from collections.abc import Iterable
from io import StringIO
from pathlib import Path

from infra.base.files import write_whole
from infra.lab.retail.invoices import SheetRow, read_rows


def described(rows: Iterable[SheetRow]) -> dict[str, str]:
    """SKU → the description that most of its lines have; the first in the alphabet of several. Some have none."""
    lines: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        if row.description:
            lines[row.sku][row.description] += 1
    return {sku: min(counts, key=lambda text: (-counts[text], text)) for sku, counts in sorted(lines.items())}


def write_articles(target: Path) -> None:
    """Writes a CSV file with the columns sku and description. Reads the whole retail file: some seconds."""
    text = StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(("sku", "description"))
    writer.writerows(described(read_rows()).items())
    write_whole(target, text.getvalue().encode())
