"""Consumer groups, their offsets, producer ids: pure state machines over their log."""
