from array import array

input_t = tuple[array, array]
output_t = array
