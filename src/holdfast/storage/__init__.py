"""One disk, one log: synchronous, knows no network and no peers."""
