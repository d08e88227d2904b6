"""decoders.image(cache=...): pixels that are kept between epochs."""

import gc

import numpy as np
import pytest
from images import encode, picture, pillow

from jaxdali import fn, pipeline_def, types
from jaxdali._cpu import Format, Info
from jaxdali.fn._decode import cache as caches
from jaxdali.fn._decode.cache import CacheOptions, ImageCache, parse_bytes
from jaxdali.fn._decode.headers import ImageHeaders

pytestmark = pytest.mark.same_with_any_jax

SIZES = [(20 + i, 30) for i in range(6)]
FILES = [encode(picture(*SIZES[0]), "JPEG"), encode(picture(*SIZES[1]), "PNG"), encode(picture(*SIZES[2]), "BMP")]
FILES += [encode(picture(*size), "JPEG", orientation=o) for size, o in zip(SIZES[3:], (1, 6, 8), strict=True)]
ALL = sum(3 * h * w for h, w in SIZES)


def batches(files, size=3):
    return [[np.frombuffer(f, np.uint8) for f in files[i : i + size]] for i in range(0, len(files), size)]


def pipeline(files, resized=False, **decoder):
    @pipeline_def(batch_size=3, num_threads=2, seed=1, enable_statistics=True, prefetch_queue_depth=1)
    def define():
        images = fn.decoders.image(
            fn.external_source(batches(files), cycle="raise", name="files"), name="image", **decoder
        )
        return fn.resize(images, size=(8, 9)) if resized else images

    return define()


def epoch(pipe):
    images = []
    while True:
        try:
            images += [np.asarray(x) for x in pipe.run()[0]]
        except StopIteration:
            pipe.reset()
            return images


def counts(pipe):
    rows = {m.stage: m for m in pipe.statistics() if m.stage in ("cache", "miss")}
    return rows["cache"].samples, rows["miss"].samples, rows["cache"].bytes


def same(actual, expected):
    assert len(actual) == len(expected)
    for x, y in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.fixture
def formats(monkeypatch):
    """The formats of the images that decoders with a cache pass on to programs, batch by batch.

    Decoders without a cache are left out, since a pipeline of another test may still run.
    """
    format_lists, run = [], ImageHeaders.run

    def spy(self, ctx, *values):
        result = run(self, ctx, *values)
        if self.cache is not None:
            format_lists.append(result[1][:, Info.FORMAT].tolist())
        return result

    monkeypatch.setattr(ImageHeaders, "run", spy)
    return format_lists


def test_a_second_epoch_decodes_nothing(formats):
    """JPEG, PNG, formats of Pillow and turned images give the same pixels, all from the cache."""
    pipe = pipeline(FILES, cache="1MB")
    expected = [pillow(f) for f in FILES]
    same(epoch(pipe), expected)
    same(epoch(pipe), expected)
    hits, misses, nbytes = counts(pipe)
    assert (misses, nbytes) == (6, ALL)
    assert hits >= 6
    assert all(f == [Format.PIXELS] * 3 for f in formats)
    pipe.close()


@pytest.mark.parametrize(
    "arguments",
    [
        {"output_type": types.GRAY},
        {"output_type": types.BGR, "dtype": types.FLOAT},
        {"adjust_orientation": False, "dtype": types.UINT16},
        {"output_type": types.ANY_DATA, "use_fast_idct": True},
        {"truncated": "accept"},
    ],
)
def test_arguments_tell_images_apart(arguments):
    """Decoders of other arguments share the cache, and none of its images."""
    plain = pipeline(FILES, cache="1MB")
    epoch(plain)
    uncached, cached = pipeline(FILES, **arguments), pipeline(FILES, cache="1MB", **arguments)
    expected = epoch(uncached)
    for _ in range(2):
        same(epoch(cached), expected)
    assert counts(cached)[1] == 6
    assert counts(cached)[2] == counts(plain)[2] > ALL
    for p in (plain, uncached, cached):
        p.close()


def test_iterators_share_the_cache_until_the_last():
    first, second = pipeline(FILES, cache="1MB"), pipeline([FILES[4], FILES[0], FILES[2]], resized=True, cache=1 << 20)
    epoch(first)
    same(epoch(second), epoch(pipeline([FILES[4], FILES[0], FILES[2]], resized=True)))
    assert counts(second)[1] == 0
    first.close()
    second.close()
    del first, second
    gc.collect()
    assert CacheOptions(1 << 20) not in caches._caches


def test_a_changed_file_is_another(tmp_path):
    """Files are identified by their contents, also if they are overwritten or have another name."""
    (tmp_path / "a").mkdir()
    for k in range(3):
        (tmp_path / "a" / f"{k}.jpg").write_bytes(FILES[0])

    @pipeline_def(batch_size=1, num_threads=1, enable_statistics=True, exec_pipelined=False, prefetch_queue_depth=1)
    def define():
        return fn.decoders.image(fn.readers.file(file_root=str(tmp_path))[0], cache="1MB")

    pipe = define()
    same([np.asarray(pipe.run()[0].at(0)) for _ in range(3)], [pillow(FILES[0])] * 3)
    assert counts(pipe)[:2] == (2, 1)
    new_content = FILES[3]
    (tmp_path / "a" / "0.jpg").write_bytes(new_content)
    same([np.asarray(pipe.run()[0].at(0))], [pillow(new_content)])
    pipe.close()


def test_bad_images_are_not_kept():
    files = [FILES[0], FILES[3][:200], FILES[4]]
    pipe = pipeline(files, cache="1MB", on_error="replace")
    for _ in range(2):
        same(epoch(pipe), [pillow(FILES[0]), pillow(FILES[4]), pillow(FILES[4])])
    assert counts(pipe)[1:] == (2, pillow(FILES[0]).nbytes + pillow(FILES[4]).nbytes)
    assert sum(b.count for b in pipe.bad_samples()) == 2
    pipe.close()
    raising = pipeline(files, cache="1MB")
    with pytest.raises(RuntimeError, match="sample 1"):
        raising.run()
    raising.close()


def test_sizes_outside_of_the_limits_are_decoded(formats):
    sizes = [pillow(f).nbytes for f in FILES]
    pipe = pipeline(FILES, cache_size=1, cache_threshold=sorted(sizes)[3])
    for _ in range(2):
        same(epoch(pipe), [pillow(f) for f in FILES])
    assert counts(pipe)[1] == 3
    assert [f.count(Format.PIXELS) for f in formats[:2]] == [0, 3]
    pipe.close()


def image(nbytes):
    return np.zeros(nbytes, np.uint8)


def test_policies_of_a_full_cache():
    """A cache of 100 bytes has images of 40, 30 and 20; the first is used again, then one of 35 comes."""

    def after(policy, new_size=35):
        cache = ImageCache(CacheOptions(100, 15, policy))
        for size in (40, 30, 20):
            assert cache.admits(size)
            cache.put(size, image(size))
        assert cache.get(40) is not None
        is_admitted = cache.admits(new_size)
        cache.put(new_size, image(new_size))
        held = {k for k in (40, 30, 20, new_size) if cache.get(k) is not None}
        assert cache.nbytes == sum(held) <= 100
        assert is_admitted == (new_size in held)
        return held

    assert after("") == {40, 20, 35}
    assert after("threshold") == {40, 30, 20}
    assert after("largest") == {40, 35}
    assert after("largest", 15) == {40, 30, 20}
    assert after("", 14) == {40, 30, 20}
    assert after("", 101) == {40, 30, 20}


def test_arguments():
    assert [parse_bytes(x) for x in (7, "7B", "2KB", "256MB", "1.5 GiB")] == [7, 7, 2048, 256 << 20, 3 << 29]
    encoded = np.frombuffer(FILES[0], np.uint8)
    for wrong in (
        {"cache": "much"},
        {"cache": -1},
        {"cache": "1MB", "cache_size": 1},
        {"cache_type": "lru"},
        {"cache_size": -1},
    ):
        with pytest.raises(ValueError, match="cache"):
            pipeline([encoded], **wrong)
