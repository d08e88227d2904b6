"""Borders: how an image goes on outside its edges, by the names that DALI's operators use."""

from ..._cpu import Border

BORDERS = {
    "constant": Border.CONSTANT,
    "fill": Border.CONSTANT,
    "pad": Border.CONSTANT,
    "reflect_101": Border.REFLECT_101,
    "reflect101": Border.REFLECT_101,
    "101": Border.REFLECT_101,
    "reflect_1001": Border.REFLECT_1001,
    "reflect1001": Border.REFLECT_1001,
    "1001": Border.REFLECT_1001,
    "reflect": Border.REFLECT_1001,
    "wrap": Border.WRAP,
    "replicate": Border.REPLICATE,
    "clamp": Border.REPLICATE,
    "edge": Border.REPLICATE,
}
