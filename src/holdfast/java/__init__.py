"""Programs that need Java: the runtime, found or brought, and a ZooKeeper server. Neither is needed by a broker."""
