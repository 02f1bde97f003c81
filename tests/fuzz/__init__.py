"""Fuzzing of everything that reads bytes from outside or from disk: ``make fuzz``."""
