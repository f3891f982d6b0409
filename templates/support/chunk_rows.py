"""How many rows of a linear layer's result a loss in chunks has in memory at a time."""

BYTES = 1 << 28  # of the layer's result that are in memory at a time
MOST_CHUNKS = 8  # each rounds the sum of the weight's gradient once more, in 16 bits
_MULTIPLE = 128  # of rows, so that the tiles of products are whole


def chunk_rows(rows, channels, bytes_each):
    """As many as fit in 256 MiB, but an eighth of all at least. bytes_each: of an element."""
    fitting = BYTES // (channels * bytes_each) // _MULTIPLE * _MULTIPLE
    eighth = -(-rows // (MOST_CHUNKS * _MULTIPLE)) * _MULTIPLE
    return max(fitting, eighth)
