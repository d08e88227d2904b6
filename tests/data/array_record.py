"""Writes array_record.json: files as the package array_record (0.8.6) writes them. Needs that package: python array_record.py."""

import base64
import json
import pathlib
import tempfile
import zlib

from array_record.python.array_record_module import ArrayRecordWriter

RECORDS = [b"", b"one", *(bytes([i]) * (i * 37 % 300) for i in range(60)), bytes(range(256)) * 600, b"x" * 65000, b"last"]
KINDS = ["1,uncompressed", "7,uncompressed", "1", "16,zstd:5", "4,brotli", "4,transpose:true"]

files = {}
with tempfile.TemporaryDirectory() as folder:
    for kind in KINDS:
        path = pathlib.Path(folder, "x")
        writer = ArrayRecordWriter(str(path), f"group_size:{kind}")
        for record in RECORDS:
            writer.write(record)
        writer.close()
        files[f"group_size:{kind}"] = base64.b64encode(zlib.compress(path.read_bytes(), 9)).decode()
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(files, indent=1))
