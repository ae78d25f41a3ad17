"""The log's committed records as Parquet, copied once each.

    manifest.json        which parts count, and to which offsets they are complete; replaced as a whole
    parts/part=<name>/   topic=<topic>/day=<recorded day>/*.parquet; never changed once it is there
    checkpoint-<name>/   where Spark's stream goes on
    lock                 held by the one writer

Only what the manifest names exists for a reader, so replacing it is the moment a batch, a compaction or a
rebuild happens; what a killed writer leaves beside it is swept away by the next one.
"""
