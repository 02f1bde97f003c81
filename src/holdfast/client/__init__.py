"""An asyncio Kafka client: used by the fetcher, the controller channel, the CLI and Spark."""
