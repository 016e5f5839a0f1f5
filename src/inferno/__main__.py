"""`python -m inferno`, the same as the `inferno` command."""

import sys

from inferno.cli import main

if __name__ == "__main__":
    sys.exit(main())
