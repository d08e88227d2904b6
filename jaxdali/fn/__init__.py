"""The operators, under DALI's names. This file is their index."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .._core import names as _names
from .._core.language import set_language as _set_language
from . import _language
from . import decoders as decoders
from . import experimental as experimental
from . import noise as noise
from . import random as random
from . import readers as readers
from . import reductions as reductions
from . import segmentation as segmentation
from . import transforms as transforms
from ._box.bb_flip import bb_flip as bb_flip
from ._box.bbox_paste import bbox_paste as bbox_paste
from ._box.box_encoder import box_encoder as box_encoder
from ._box.random_bbox_crop import random_bbox_crop as random_bbox_crop
from ._box.roi_random_crop import roi_random_crop as roi_random_crop
from ._decode.peek_image_shape import peek_image_shape as peek_image_shape
from ._deprecated import coin_flip as coin_flip
from ._deprecated import file_reader as file_reader
from ._deprecated import image_decoder as image_decoder
from ._deprecated import image_decoder_crop as image_decoder_crop
from ._deprecated import image_decoder_random_crop as image_decoder_random_crop
from ._deprecated import image_decoder_slice as image_decoder_slice
from ._deprecated import normal_distribution as normal_distribution
from ._deprecated import uniform as uniform
from ._image.brightness_contrast import brightness as brightness
from ._image.brightness_contrast import brightness_contrast as brightness_contrast
from ._image.brightness_contrast import contrast as contrast
from ._image.clahe import clahe as clahe
from ._image.color_space_conversion import color_space_conversion as color_space_conversion
from ._image.color_twist import color_twist as color_twist
from ._image.color_twist import hsv as hsv
from ._image.color_twist import hue as hue
from ._image.color_twist import saturation as saturation
from ._image.crop import crop as crop
from ._image.crop_mirror_normalize import crop_mirror_normalize as crop_mirror_normalize
from ._image.equalize import equalize as equalize
from ._image.erase import erase as erase
from ._image.flip import flip as flip
from ._image.gaussian_blur import gaussian_blur as gaussian_blur
from ._image.laplacian import laplacian as laplacian
from ._image.pad import pad as pad
from ._image.random_crop_generator import random_crop_generator as random_crop_generator
from ._image.random_resized_crop import random_resized_crop as random_resized_crop
from ._image.resize import resize as resize
from ._image.resize_crop_mirror import resize_crop_mirror as resize_crop_mirror
from ._image.rotate import rotate as rotate
from ._image.slice import slice as slice
from ._image.warp_affine import warp_affine as warp_affine
from ._source.external_source import external_source as external_source
from ._tensor.batch_permutation import batch_permutation as batch_permutation
from ._tensor.cast import cast as cast
from ._tensor.cast_like import cast_like as cast_like
from ._tensor.cat import cat as cat
from ._tensor.constant import constant as constant
from ._tensor.coord_flip import coord_flip as coord_flip
from ._tensor.coord_transform import coord_transform as coord_transform
from ._tensor.copy import copy as copy
from ._tensor.element_extract import element_extract as element_extract
from ._tensor.expand_dims import expand_dims as expand_dims
from ._tensor.full import full as full
from ._tensor.full import full_like as full_like
from ._tensor.get_property import get_property as get_property
from ._tensor.lookup_table import lookup_table as lookup_table
from ._tensor.normalize import normalize as normalize
from ._tensor.one_hot import one_hot as one_hot
from ._tensor.ones import ones as ones
from ._tensor.ones import ones_like as ones_like
from ._tensor.per_frame import per_frame as per_frame
from ._tensor.permute_batch import permute_batch as permute_batch
from ._tensor.reshape import reinterpret as reinterpret
from ._tensor.reshape import reshape as reshape
from ._tensor.sequence_rearrange import sequence_rearrange as sequence_rearrange
from ._tensor.shapes import shapes as shapes
from ._tensor.squeeze import squeeze as squeeze
from ._tensor.stack import stack as stack
from ._tensor.transpose import transpose as transpose
from ._tensor.zeros import zeros as zeros
from ._tensor.zeros import zeros_like as zeros_like

_set_language(_language)

if not _TYPE_CHECKING:
    __all__, __dir__, __getattr__ = _names.index(__name__, globals())
