"""A real Apache Kafka and ZooKeeper on this machine, as child processes."""
