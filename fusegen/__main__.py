"""`python -m fusegen`, the same as the `fusegen` script."""

from __future__ import annotations

from fusegen.cli import main

if __name__ == "__main__":
    main()
