"""What goes into the kernel and what comes out."""

from array import array

Vector = array  # of type code "f"
input_t = tuple[Vector, Vector]  # a, b
output_t = Vector
