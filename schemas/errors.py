"""The error of this boundary."""


class SchemaError(ValueError):
    """Bytes, or a value, that do not fit their schema.

    The message says what was expected and what was found.
    """


class UnknownSchemaId(SchemaError):
    """A well-formed header whose schema this process does not know.

    This is not the record's fault: wait for the schema, then stop with the reason;
    never dead-letter the record.
    """

    def __init__(self, schema_id: int) -> None:
        super().__init__(f"expected a known schema id, found {schema_id}")
        self.schema_id = schema_id
