"""Stories on Apache Kafka: its brokers as processes, the links between them, and a stage over both."""
