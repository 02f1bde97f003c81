"""The controller's decisions, pure: event in, records and reply out."""
