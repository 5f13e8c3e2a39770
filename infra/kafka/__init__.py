"""Real Apache Kafka (KRaft) from Maven's jars, for tests and people: `python -m infra.kafka`."""
