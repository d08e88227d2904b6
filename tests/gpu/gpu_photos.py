"""Photos for what is measured on a GPU: JPEGs of 500x375 pixels or a few more or less, about 105 KB, 4:2:0.

They lie in the folder that $PHOTOS names, so that the scripts of one machine share them. This file imports neither JAX
nor the package.
"""

import concurrent.futures
import os
import pathlib
import subprocess
import sys

SHAPES = [((500, 375), 0.75), ((375, 500), 0.25)]


def folder() -> pathlib.Path:
    return pathlib.Path(os.environ.get("PHOTOS", "/tmp/gpu_first_photos"))


def path(i: int) -> pathlib.Path:
    return folder() / f"class_{i % 8}" / f"{i:05d}.jpg"


def make(n: int) -> list[pathlib.Path]:
    """The paths of the first n photos, sorted. Those that are missing are made."""
    paths = sorted(map(path, range(n)))
    if not all(p.exists() for p in paths):
        # In a process of its own, for one in which JAX has started threads must not fork.
        subprocess.run([sys.executable, __file__, str(n)], check=True)
    return paths


def make_one(i: int) -> None:
    from photos import make_photos

    temporary = folder() / f"{i}.{os.getpid()}"
    make_photos(temporary, 1, 1, seed=i, shapes=SHAPES, sigma=(12, 30))
    (temporary / "class_000" / "00000.jpg").rename(path(i))
    (temporary / "class_000").rmdir()
    temporary.rmdir()


def main():
    sys.path.append(str(pathlib.Path(__file__).parents[1] / "benchmarks"))  # photos.py
    missing = [i for i in range(int(sys.argv[1])) if not path(i).exists()]
    for i in missing:
        path(i).parent.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ProcessPoolExecutor() as pool:
        list(pool.map(make_one, missing, chunksize=4))


if __name__ == "__main__":
    main()
