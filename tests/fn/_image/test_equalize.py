"""equalize and clahe, against definitions in NumPy."""

import numpy as np
import pytest
from images import picture
from pipelines import run

from jaxdali import fn


def histogram_table(plane: np.ndarray) -> np.ndarray:
    count = np.bincount(plane.reshape(-1), minlength=256)
    first = np.flatnonzero(count)[0]
    if count[first] == plane.size:
        return np.arange(256)
    count[first], remaining = 0, plane.size - count[first]
    return np.rint(np.cumsum(count).astype(np.float32) * np.float32(255 / remaining))


def equalized(image: np.ndarray, spatial: tuple[int, int]) -> np.ndarray:
    planes = np.moveaxis(image, spatial, (-2, -1))
    out = np.stack([histogram_table(p)[p] for p in planes.reshape(-1, *planes.shape[-2:])])
    return np.moveaxis(out.reshape(planes.shape), (-2, -1), spatial).astype(np.uint8)


@pytest.mark.parametrize("layout", ["HW", "HWC", "CHW", "FHW", "FHWC", "FCHW"])
@pytest.mark.parametrize("uniform", [True, False])
def test_equalize(layout, uniform):
    rng = np.random.default_rng(0)
    spatial = (layout.index("H"), layout.index("W"))

    def sample(i):
        shape = [{"F": 2, "C": 3, "H": 7, "W": 11}[letter] + (0 if uniform else i) for letter in layout]
        return rng.integers(20 * i, 90, shape, np.uint8)

    samples = [sample(i) for i in range(3)]
    samples[1][:] = 7  # of one value
    (y,) = run(lambda x: fn.equalize(x), samples, layouts=[layout])
    assert y.layout() == layout
    for image, x in zip(map(np.array, y), samples, strict=True):
        np.testing.assert_array_equal(image, equalized(x, spatial))


def clahe_plane(plane: np.ndarray, tiles_y: int, tiles_x: int, clip_limit: float) -> np.ndarray:
    """CLAHE of the paper, in float64: tables from the clipped histograms of tiles, blended by the distance from the
    tiles' centres.
    """
    height, width = plane.shape
    down, right = ((-height) % tiles_y, (-width) % tiles_x)
    if down or right:  # If one axis grows, both do, also by a whole tile.
        down, right = tiles_y - height % tiles_y, tiles_x - width % tiles_x
    large = np.pad(plane, ((0, down), (0, right)), mode="reflect")
    th, tw = large.shape[0] // tiles_y, large.shape[1] // tiles_x
    tables = np.zeros((tiles_y, tiles_x, 256))
    for i in range(tiles_y):
        for j in range(tiles_x):
            count = np.bincount(large[i * th : (i + 1) * th, j * tw : (j + 1) * tw].reshape(-1), minlength=256)
            if clip_limit > 0:
                limit = max(1, int(clip_limit * th * tw / 256))
                excess = int(np.maximum(count - limit, 0).sum())
                count = np.minimum(count, limit) + excess // 256
                if excess % 256:
                    count[:: max(256 // (excess % 256), 1)][: excess % 256] += 1
            tables[i, j] = np.rint(np.cumsum(count) * 255 / (th * tw))

    def neighbouring_tiles(n, tile, tiles):
        position = np.arange(n) / tile - 0.5
        low = np.floor(position).astype(int)
        return np.clip(low, 0, tiles - 1), np.clip(low + 1, 0, tiles - 1), position - low

    (y0, y1, fy), (x0, x1, fx) = neighbouring_tiles(height, th, tiles_y), neighbouring_tiles(width, tw, tiles_x)
    corner = [[tables[a[:, None], b[None], plane] for b in (x0, x1)] for a in (y0, y1)]
    rows = [r[0] * (1 - fx) + r[1] * fx for r in corner]
    return rows[0] * (1 - fy[:, None]) + rows[1] * fy[:, None]


@pytest.mark.parametrize(
    ("tiles_y", "tiles_x", "clip_limit"), [(1, 1, 0.0), (4, 3, 2.0), (5, 8, 1.0), (2, 7, 40.0), (1, 2, 2.0**56)]
)
def test_clahe(tiles_y, tiles_x, clip_limit):
    image = picture(61, 84)
    images = [image[..., :1], image, image[:40, :20]]
    (y,) = run(
        lambda x: fn.clahe(x, tiles_x=tiles_x, tiles_y=tiles_y, clip_limit=clip_limit, luma_only=False),
        images,
        layouts=["HWC"],
    )
    for actual, x in zip(map(np.array, y), images, strict=True):
        want = np.stack([clahe_plane(x[..., c], tiles_y, tiles_x, clip_limit) for c in range(x.shape[2])], axis=-1)
        assert np.abs(actual - want).max() <= 0.5 + 1e-3


def test_clahe_of_the_lightness_keeps_the_colours():
    """The lightness is equalized as a grey image would be, and the colours a* and b* hardly change."""
    image = picture(50, 70)
    (colour,) = run(lambda x: fn.clahe(x, tiles_x=4, tiles_y=4, clip_limit=3.0), [image], layouts=["HWC"])
    lab_before, lab_after = (lightness_and_colour(np.asarray(x, np.float64)) for x in (image, np.array(colour[0])))
    is_unclipped = np.all((np.array(colour[0]) > 0) & (np.array(colour[0]) < 255), axis=2)
    assert np.abs(lab_before - lab_after)[is_unclipped][:, 1:].max() < 3
    want = clahe_plane(np.rint(lab_before[..., 0] * 2.55).astype(np.uint8), 4, 4, 3.0) / 2.55
    assert (
        np.abs(lab_after[..., 0] - want)[is_unclipped].mean()
        < 1
        < np.abs(lab_before - lab_after)[is_unclipped][:, 0].mean() - 3
    )


def lightness_and_colour(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of sRGB."""
    c = rgb / 255
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    xyz = (
        linear
        @ np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]]).T
    )
    t = xyz / [0.950456, 1, 1.088754]
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.stack([116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], axis=-1)


def test_numbers_of_dali():
    """A gradient of colours, recorded from DALI 2.4."""
    image = (np.arange(6 * 8 * 3) * 7 % 256).astype(np.uint8).reshape(6, 8, 3)
    (y,) = run(lambda x: fn.clahe(x, tiles_x=2, tiles_y=2, clip_limit=2.0), [image], layouts=["HWC"])
    assert np.array(y[0])[::5, ::7].tolist() == WANT


WANT = [[[19, 25, 28], [156, 163, 171]], [[72, 79, 86], [226, 232, 239]]]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda x: fn.equalize(fn.cast(x, dtype="int16")), "equalize .*: the input must be uint8, got int16"),
        (lambda x: fn.clahe(x, tiles_x=2, tiles_y=2, clip_limit=2.0, bins=64), "bins must be 256"),
        (
            lambda x: fn.clahe(x, tiles_x=0, tiles_y=2, clip_limit=2.0),
            "tiles_x must be a whole number in 1 ... 4096, got 0",
        ),
        (lambda x: fn.clahe(x, tiles_x=2, tiles_y=2, clip_limit=2.0), "the input must have 1 or 3 channels, got 2"),
    ],
)
def test_errors(make, text):
    with pytest.raises(Exception, match=text):
        run(make, [np.zeros((4, 4, 2), np.uint8)], layouts=["HWC"])
