"""Records what DALI's readers and decoders of videos give for the files of this folder: dali.json and dali.npz.

    python tests/data/video/record.py   # with DALI 2.4; on the CPU it decodes VP8, VP9 and MJPEG alone

The cases are those of dali.json, whose results are replaced. The videos were written by `tests/videos.py`.
"""

import json
import os
import pathlib
import tempfile

import numpy as np
from nvidia.dali import fn, pipeline_def

FILE = "601.mp4"


def run(define, n):
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def pipeline():
        nodes = define()
        return tuple(nodes) if isinstance(nodes, (list, tuple)) else nodes

    p = pipeline()
    return [[np.array(output[0]) for output in p.run()] for _ in range(n)]


def sums(frames):
    return frames.reshape(len(frames), -1).astype(np.int64).sum(1).tolist()


def clips(case, folder):
    source = {"filenames": [FILE]}
    if case["list"] is not None:
        path = pathlib.Path(folder) / "list"
        path.write_text(f"{FILE} 3 {case['list']}\n")
        source = {"file_list": str(path)}
    extra = {"enable_frame_num": "sequence", "enable_timestamps": True}
    batches = run(lambda: fn.experimental.readers.video(**source, **extra, **case["arguments"]), 5)
    return [{"frames": x[-2].tolist(), "times": np.round(x[-1], 6).tolist(), "sums": sums(x[0])} for x in batches]


def decoded(case):
    data = np.fromfile(FILE, np.uint8)
    try:
        batches = run(lambda: fn.decoders.video(fn.external_source(source=lambda: [data], batch=True), **case["arguments"]), 1)
    except Exception:
        return None
    return sums(batches[0][0])


def main():
    os.chdir(pathlib.Path(__file__).parent)
    cases = json.loads(pathlib.Path("dali.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        readers = [{**case, "clips": clips(case, folder)} for case in cases["readers"]]
    decoders = [{**case, "sums": decoded(case)} for case in cases["decoders"]]
    parts = (",\n".join(map(json.dumps, x)) for x in (readers, decoders))
    pathlib.Path("dali.json").write_text('{"readers": [\n%s\n], "decoders": [\n%s\n]}\n' % tuple(parts))
    files = sorted(f for f in os.listdir() if f.endswith((".mp4", ".avi")))
    frames = {f: run(lambda f=f: fn.experimental.readers.video(filenames=[f], sequence_length=2, stride=3), 1)[0][0] for f in files}
    np.savez_compressed("dali.npz", **frames)


if __name__ == "__main__":
    main()
