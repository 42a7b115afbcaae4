"""``python -m torch_goat`` is the command ``goat``, for launchers that start modules."""

from torch_goat.app.cli import main

if __name__ == "__main__":
    main()
