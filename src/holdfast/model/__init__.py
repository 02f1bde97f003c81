"""The words every floor uses: types, error families, configuration keys. No behaviour."""
