"""What every coordinator shares whose state is the newest record of each key of an internal topic. Pure."""
