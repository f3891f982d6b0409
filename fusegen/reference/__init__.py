"""What a spec may say, told from the models and the catalogue: lists, pages, a schema and a spec to start from."""
