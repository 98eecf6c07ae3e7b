"""`python -m mmb`: the command line."""

import sys

from mmb.cli import main

if __name__ == "__main__":
    sys.exit(main())
