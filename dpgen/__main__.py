"""`python -m dpgen` is the command `dpgen`."""

import sys

from dpgen.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
