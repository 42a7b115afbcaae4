"""``python -m torch_goat.tables.worker``: runs a table; see :mod:`torch_goat.experiments.tables.run_table`."""

import sys

from torch_goat.experiments.tables.run_table import main

if __name__ == "__main__":
    sys.exit(main())
