"""The metadata stores: how the controller is elected and where its records are kept."""
