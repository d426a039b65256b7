"""What goes into the kernel and what comes out."""

from array import array

Numbers = array  # of type code "i"
input_t = tuple[Numbers]  # x
output_t = Numbers
