"""Record → rows of tables. Pure: no I/O; one module per topic, dispatched by `build`."""
