"""Kafka clients, topics and delivery: the only place where clients are made."""
