"""The operators on Structured Streaming.

A query becomes a chain of stages, one for each operator that needs its rows together by some key:

    rows -> packer -> groupBy(bucket).transformWithState -> unpacker -> rows

The packer (`wire`) turns rows into Arrow blobs, one for each bucket of keys. The stage
(`processor`) feeds them to the same step functions that run without Spark, with its state in
RocksDB (`memory`). The unpacker makes rows of what comes out. `stages` puts the chain together,
`operators` has the public operators over it, and `carrier` is about time.
"""
