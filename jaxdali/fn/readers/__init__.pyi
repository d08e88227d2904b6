"""Readers: operators that bring a data set's samples into a pipeline."""

from ._array_record import array_record as array_record
from ._caffe import caffe as caffe
from ._caffe2 import caffe2 as caffe2
from ._coco import coco as coco
from ._file import file as file
from ._mxnet import mxnet as mxnet
from ._nemo_asr import nemo_asr as nemo_asr
from ._numpy import numpy as numpy
from ._parquet import parquet as parquet
from ._sequence import sequence as sequence
from ._source import source as source
from ._tfds import tfds as tfds
from ._tfrecord import tfrecord as tfrecord
from ._tokens import tokens as tokens
from ._video import video as video
from ._video_resize import video_resize as video_resize
from ._webdataset import webdataset as webdataset
from ._zip import zip as zip
