"""What goes into the kernel and what comes out."""

from array import array

Matrix = list[array]  # rows, each of type code "f"
input_t = tuple[Matrix, Matrix]  # a, b
output_t = Matrix
