"""The command ``python -m jaxdali`` lists the commands of the package."""

import argparse
import sys
from collections.abc import Sequence

_DESCRIPTION = """\
Input pipelines for JAX. These are the commands; --help after one that takes
arguments prints them.

  python -m jaxdali.benchmark  measures a pipeline on your files, and finds what limits it
  python -m jaxdali.extend     prints a compiler's arguments for your own kernels
  python -m jaxdali.fn         lists the operators, or prints the help of some
  python -m jaxdali.index      writes the indices of TFRecord files and WebDataset archives
  python -m jaxdali.pack       writes the records of any reader as shards
  python -m jaxdali.port       finds what a script for DALI uses that is missing here, or runs it
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the list. Returns 0."""
    parser = argparse.ArgumentParser(
        "python -m jaxdali",
        usage="python -m jaxdali.COMMAND ...",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(arguments)
    parser.print_help()
    return 0


if __name__ == "__main__":
    sys.exit(main())
