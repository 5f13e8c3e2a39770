"""Everything on one machine without Docker: embedded broker and ClickHouse, supervisor, status table."""
