"""Named, versioned datasets of what batches hold: files that no stack is needed to read.

`selection` chooses, `rows` flattens, `files` writes Parquet and JSON lines, `manifest` says where it all
comes from, `store` keeps versions.
"""
