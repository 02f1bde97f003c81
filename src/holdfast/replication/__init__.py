"""Leaders, followers, in-sync replicas and high watermarks; synchronous, the clock comes in."""
