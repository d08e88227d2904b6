"""Decoding of images, for the operators of `fn/decoders` and others.

Three folders are named after decoding. `fn/decoders` has the operators that users call. This package has what they
share on the host: it parses headers, chooses regions and pages, keeps the cache, and decodes with libraries what the
native code does not. `ffi/decode` is the native kernel, which decodes in the program.
"""
