"""Regenerate the figures of a paper: `python scripts/reproduce.py NAME [--out DIR] [--data_root DIR] [--quick]`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from papers.common import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
