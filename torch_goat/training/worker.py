"""``python -m torch_goat.training.worker``: runs a plan; see :mod:`torch_goat.experiments.plan`."""

import sys

from torch_goat.experiments.plan import main

if __name__ == "__main__":
    sys.exit(main())
