"""The command ``goat``. Nothing in the library imports from here."""

import sys


def main() -> None:
    """Runs the command line, or says what it needs."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        sys.exit(f"goat: {error.name} is missing; install the command line with: pip install 'torch-goat[cli]'")
    from torch_goat.cli.app import run

    run()
