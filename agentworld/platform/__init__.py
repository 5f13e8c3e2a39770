"""What every service shares: settings, the log (Kafka), ClickHouse, metrics, logging, reports."""
