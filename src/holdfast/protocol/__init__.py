"""The wire without I/O: API table, framing, error codes, and the few hot codecs."""
