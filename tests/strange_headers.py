"""Files of NumPy whose headers describe no array that there can be."""


def npy(shape: str = "(1,)", descr: str = "<i2", header: str = "") -> bytes:
    """A file of 2 bytes with this header."""
    text = (header or f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}").encode()
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + b"\1\0"


_TOO_LARGE = "is too large: an array can't have so many bytes$"
# The bytes of each, and the message about it.
FILES = [
    (npy(f"(0, {2**62})"), _TOO_LARGE),
    (npy(f"({2**63}, 1)"), _TOO_LARGE),
    (npy(f"({2**64}, 0)"), _TOO_LARGE),
    (npy(f"({2**40}, {2**40})"), _TOO_LARGE),
    (npy(f"({'9' * 5000}, 1)"), rf"its shape \(9{{200}}\.\.\.\) {_TOO_LARGE}"),
    (npy("(-1, -1)"), r"does not describe an array of numbers: .*\(-1, -1\)"),
    (npy(f"({'1, ' * 200})"), "it has 200 dimensions, more than 64$"),
    (npy(header="[" * 60_000), r"does not describe an array of numbers: \[{200}\.\.\.$"),
    (npy(descr="i" + "9" * 9_000), r"'i9{198,200}\.\.\. in its header is not a type$"),
    (b"\x93NUMPY\2\0\xff\xff\xff\xff{" + bytes(100), "its header would take 4294967295 bytes, more than 65535$"),
]
