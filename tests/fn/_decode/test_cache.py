"""decoders.image(cache=...): pixels that are kept between epochs."""

import gc

import numpy as np
import pytest
from images import encode, picture, pillow

from jaxdali import fn, pipeline_def, types
from jaxdali._cpu import Format, Info
from jaxdali.fn._decode import cache as caches
from jaxdali.fn._decode.cache import CacheOptions, ImageCache, parse_bytes
from jaxdali.fn._decode.decode import ImageHeaders

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
    found = []
    while True:
        try:
            found += [np.asarray(x) for x in pipe.run()[0]]
        except StopIteration:
            pipe.reset()
            return found


def counts(pipe):
    rows = {m.stage: m for m in pipe.statistics() if m.stage in ("cache", "miss")}
    return rows["cache"].samples, rows["miss"].samples, rows["cache"].bytes


def same(got, want):
    assert len(got) == len(want)
    for x, y in zip(got, want, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.fixture
def formats(monkeypatch):
    """What decoders with a cache hand to programs, batch by batch: a pipeline that another test has left may go on
    meanwhile.
    """
    found, run = [], ImageHeaders.run

    def spy(self, ctx, *values):
        result = run(self, ctx, *values)
        if self.cache is not None:
            found.append(result[1][:, Info.FORMAT].tolist())
        return result

    monkeypatch.setattr(ImageHeaders, "run", spy)
    return found


def test_a_second_epoch_decodes_nothing(formats):
    """JPEG, PNG, what Pillow decodes, and turned images: the same pixels, all from the cache."""
    pipe = pipeline(FILES, cache="1MB")
    want = [pillow(f) for f in FILES]
    same(epoch(pipe), want)
    same(epoch(pipe), want)
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
    without, other = pipeline(FILES, **arguments), pipeline(FILES, cache="1MB", **arguments)
    want = epoch(without)
    for _ in range(2):
        same(epoch(other), want)
    assert counts(other)[1] == 6
    assert counts(other)[2] == counts(plain)[2] > ALL
    for p in (plain, without, other):
        p.close()


def test_iterators_share_it_and_it_goes_with_the_last():
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
    """Files are known by what is in them: also those that were overwritten, and read under another name."""
    (tmp_path / "a").mkdir()
    for k in range(3):
        (tmp_path / "a" / f"{k}.jpg").write_bytes(FILES[0])

    @pipeline_def(batch_size=1, num_threads=1, enable_statistics=True, exec_pipelined=False, prefetch_queue_depth=1)
    def define():
        return fn.decoders.image(fn.readers.file(file_root=str(tmp_path))[0], cache="1MB")

    pipe = define()
    same([np.asarray(pipe.run()[0].at(0)) for _ in range(3)], [pillow(FILES[0])] * 3)
    assert counts(pipe)[:2] == (2, 1)
    other = FILES[3]
    (tmp_path / "a" / "0.jpg").write_bytes(other)
    same([np.asarray(pipe.run()[0].at(0))], [pillow(other)])
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


def test_what_is_too_large_or_too_small_is_decoded_as_ever(formats):
    sizes = [pillow(f).nbytes for f in FILES]
    pipe = pipeline(FILES, cache_size=1, cache_threshold=sorted(sizes)[3])
    for _ in range(2):
        same(epoch(pipe), [pillow(f) for f in FILES])
    assert counts(pipe)[1] == 3
    assert [f.count(Format.PIXELS) for f in formats[:2]] == [0, 3]
    pipe.close()


def image(nbytes):
    return np.zeros(nbytes, np.uint8)


def test_what_makes_room():
    """A limit of 100 bytes: images of 40, 30 and 20; the first is used again, then comes one of 35."""

    def after(policy, more=35):
        cache = ImageCache(CacheOptions(100, 15, policy))
        for size in (40, 30, 20):
            assert cache.admits(size)
            cache.put(size, image(size))
        assert cache.get(40) is not None
        taken = cache.admits(more)
        cache.put(more, image(more))
        held = {k for k in (40, 30, 20, more) if cache.get(k) is not None}
        assert cache.nbytes == sum(held) <= 100
        assert taken == (more in held)
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
