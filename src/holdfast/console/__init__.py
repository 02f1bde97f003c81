"""A web console over the client alone: what a cluster's disks, brokers, topics and groups are like, and acts on them."""
