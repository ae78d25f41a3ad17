"""The log's committed records as Delta tables, copied and decoded once each.

    events_raw     every record with its headers and its value as they were written, partitioned by `record`
    order_placed … one table per event type: the envelope, `readable`, and the event's fields; money is a decimal
    exceptions     which records are no events that count, by the rule of docs/adr/0017
    commits        one row per update: when, of which log, to which offsets, with which exceptions
    events_lost    the events that a log had which was replaced, and today's has not

A row of `commits` makes an update visible: readers see what lies before its offsets. The first three are in a folder of
their own for each log (`copy_of`)."""
