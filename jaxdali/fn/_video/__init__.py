"""Videos: their frames by number.

Four operators share this package. Readers of clips are in `readers/_video.py` (`readers.video`) and
`experimental/readers/_video.py`, the decoder of whole files in `decoders/_video.py`, and the input that is fed with
long videos in `experimental/inputs/_video.py`.

`clips.py` lists the clips of many files for the readers. `video_file.py` opens a file, `indexing.py` makes its
`VideoIndex`, `frame_decoder.py` decodes its frames, and `open_videos.py` keeps decoders open. `pixels.py` converts
decoded frames to RGB on the host, and `planes.py` does so in a program.
"""
