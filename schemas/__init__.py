"""What is on the wire: topics, records, their Avro schemas and the codec."""
