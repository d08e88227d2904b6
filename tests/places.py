"""Where things lie in the repository."""

import pathlib

ROOT = pathlib.Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
PHOTOS = EXAMPLES / "images"  # a folder per class
DATA = ROOT / "tests" / "data"
