"""The spec's module beside the original: at other sizes, values, dtypes and numbers of rows."""
