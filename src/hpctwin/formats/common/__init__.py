"""Parts that several formats share: files, fields, tables of records."""
