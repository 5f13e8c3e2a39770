"""What runs beneath the services: brokers, ClickHouse, images, the compose file, the local stack."""
