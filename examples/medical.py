"""Shows medical images, DICOM and NIfTI, as formats that `decoders.image` decodes.

    python examples/medical.py

It needs pydicom and NiBabel: pip install pydicom nibabel

The two decoders are all that jaxdali needs to know of the formats. The rest is an ordinary
pipeline, of 16-bit images and of volumes. The example makes files of its own.
"""

import gzip
import io
import pathlib
import tempfile
import zlib

import numpy as np
import pydicom
from nibabel.loadsave import save
from nibabel.nifti1 import Nifti1Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import UID, CTImageStorage, ExplicitVRLittleEndian

from jaxdali import fn, types
from jaxdali.extend import register_decoder
from jaxdali.plugin.jax import data_iterator

# --- the decoders ---------------------------------------------------------------------------------


def is_dicom(data: bytes) -> bool:
    """A preamble of 128 bytes, then four letters."""
    return data[128:132] == b"DICM"


def decode_dicom(data: bytes) -> np.ndarray:
    """The pixels as they are stored, ``(H, W)``, ``(H, W, 3)``, or ``(frames, H, W, channels)``."""
    image = pydicom.dcmread(io.BytesIO(data))
    pixels = image.pixel_array
    gray_frames = image.get("NumberOfFrames", 1) > 1 and image.SamplesPerPixel == 1
    return pixels[..., None] if gray_frames else pixels


def is_nifti(data: bytes) -> bool:
    """A header of 348 bytes, which ends with the format's letters; or a gzip file of it."""
    head = data[:348]
    if head[:2] == b"\x1f\x8b":
        head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data[:4096], 348)
    return head[344:347] in (b"n+1", b"ni1")


def decode_nifti(data: bytes) -> np.ndarray:
    """The voxels as they are stored, ``(D, H, W, 1)``: NIfTI's axes are x, y and z."""
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    voxels = np.asarray(Nifti1Image.from_bytes(data).dataobj)
    return voxels.T[..., None]


def register():
    """Makes the decoders of images know both formats."""
    register_decoder(is_dicom, decode_dicom, name="dicom")
    register_decoder(is_nifti, decode_nifti, name="nifti")


# --- pipelines ------------------------------------------------------------------------------------


@data_iterator(output_map=["images", "names"], reader_name="slices")
def slices(files):
    """16-bit slices: the values between two levels as 0 to 1, resized and turned a little."""
    encoded, _, names = fn.readers.file(files=files, metadata=["filename"], name="slices")
    images = fn.cast(fn.decoders.image(encoded), dtype=types.FLOAT)
    images = fn.resize(images, size=(64, 64))
    images = fn.rotate(images, angle=fn.random.uniform(range=(-10.0, 10.0)), keep_size=True)
    return images * (1 / 4095), names


@data_iterator(output_map=["volumes"], reader_name="volumes")
def volumes(files):
    """Volumes: a window, turned around the axis of the body, resized to 8x32x32, with noise."""
    encoded, _ = fn.readers.file(files=files, name="volumes")
    volume = fn.cast(fn.decoders.image(encoded), dtype=types.FLOAT)
    volume = fn.crop(volume, crop=(12, 24, 24))
    angle = fn.random.uniform(range=(-10.0, 10.0))
    volume = fn.rotate(volume, angle=angle, axis=(0, 0, 1), keep_size=True)
    volume = fn.resize(volume, resize_z=8, resize_y=32, resize_x=32)
    return fn.noise.gaussian(volume, stddev=2.0)


# --- files to try them with -----------------------------------------------------------------------


def write_dicom(path: pathlib.Path, pixels: np.ndarray):
    """Writes 16-bit pixels ``(H, W)``, or ``(frames, H, W)``."""
    image = Dataset()
    image.file_meta = FileMetaDataset()
    image.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    image.file_meta.MediaStorageSOPClassUID = image.SOPClassUID = CTImageStorage
    image.file_meta.MediaStorageSOPInstanceUID = image.SOPInstanceUID = UID("1.2.3")
    image.SamplesPerPixel, image.PixelRepresentation = 1, 0
    image.PhotometricInterpretation = "MONOCHROME2"
    image.BitsAllocated, image.BitsStored, image.HighBit = 16, 12, 11
    image.Rows, image.Columns = pixels.shape[-2:]
    if pixels.ndim == 3:
        image.NumberOfFrames = len(pixels)
    image.PixelData = pixels.astype("<u2").tobytes()
    image.save_as(path, enforce_file_format=True)


def write_nifti(path: pathlib.Path, voxels: np.ndarray):
    """Writes voxels ``(D, H, W)``."""
    save(Nifti1Image(voxels.T, np.eye(4)), path)


def make_files(folder: pathlib.Path) -> tuple[list[str], list[str]]:
    """Some slices and volumes of a ball."""
    z, y, x = np.mgrid[-1:1:16j, -1:1:40j, -1:1:48j]
    ball = 4000 * (x**2 + y**2 + z**2 < 0.7)
    dicom = [folder / f"{i}.dcm" for i in range(4)]
    nifti = [folder / f"{i}.nii{'.gz' if i % 2 else ''}" for i in range(4)]
    for i in range(4):
        write_dicom(dicom[i], ball[4 + i].astype(np.uint16))
        write_nifti(nifti[i], ball[i:].astype(np.int16))
    return [str(p) for p in dicom], [str(p) for p in nifti]


def main():
    register()
    with tempfile.TemporaryDirectory() as folder:
        dicom, nifti = make_files(pathlib.Path(folder))
        for batch in slices(dicom, batch_size=2, num_threads=2, seed=1):
            names = [pathlib.Path(name).name for name in batch["names"]]
            print("slices", batch["images"].shape, batch["images"].dtype, names)
        for batch in volumes(nifti, batch_size=2, num_threads=2, seed=1):
            print("volumes", batch["volumes"].shape, batch["volumes"].dtype)


if __name__ == "__main__":
    main()
