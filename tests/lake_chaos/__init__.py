"""Lakes that are killed at every step, and a ledger that says what must be in the tables: ``make lake-chaos``."""
