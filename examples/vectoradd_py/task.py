"""What goes into the kernel and what comes out."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    import torch

Vector = Union["array[float]", "torch.Tensor"]  # array("f"), or float32 on the GPU
input_t = tuple[Vector, Vector]  # a, b
output_t = Vector
