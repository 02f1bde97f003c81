"""What is wrong with a schema, of any format."""


class SchemaError(ValueError):
    """The text is no schema, or one that has no columns; or values of the one cannot be read as the other."""
