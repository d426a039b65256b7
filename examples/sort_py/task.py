"""What goes into the kernel and what comes out."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    import torch

Numbers = Union["array[int]", "torch.Tensor"]  # array("i"), or int32 on the GPU
input_t = tuple[Numbers]  # x
output_t = Numbers
