"""What several formats share: files, fields, tables of records."""
