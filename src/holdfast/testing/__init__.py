"""Public: a real cluster inside a test."""
