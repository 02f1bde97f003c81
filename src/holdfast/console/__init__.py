"""A web console over the client alone: what disks, brokers, topics and groups are like, and acts on them."""
