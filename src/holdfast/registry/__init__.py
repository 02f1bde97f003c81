"""Asking a schema registry over HTTP."""
