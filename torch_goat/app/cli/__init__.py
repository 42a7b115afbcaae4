"""The ``goat`` command."""

import sys


def main() -> None:
    """Runs the command line, or says what it needs."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401

        from torch_goat.app.cli.app import run
    except ImportError as error:
        missing = str(error.name).partition(".")[0]
        sys.exit(f"goat: {missing} is missing; install the command line with: pip install 'torch-goat[cli]'")
    except KeyboardInterrupt:
        print("goat: stopped.", file=sys.stderr)
        sys.exit(130)
    run()
