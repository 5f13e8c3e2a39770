"""Faults under load on real Apache Kafka, and the auditor of what they did to the data."""
