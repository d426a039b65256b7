"""What goes into the kernel and what comes out."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    import torch

Matrix = Union["list[array[float]]", "torch.Tensor"]  # rows of array("f"), or float32 on the GPU
input_t = tuple[Matrix, Matrix]  # a, b
output_t = Matrix
