"""Operators of bounding boxes, one file each."""
