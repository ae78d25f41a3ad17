"""The log's committed records as Parquet, copied once each.

    manifest.json        the valid parts, and the offsets up to which they are complete; replaced as a whole
    parts/part=<name>/   topic=<topic>/day=<recorded day>/*.parquet; never changed
    checkpoint-<name>/   the position of Spark's stream
    lock                 locked by the only writer

A reader sees only what the manifest names, so a batch, a compaction or a rebuild takes effect when the manifest is
replaced. The next writer removes what a killed writer has left.
"""
