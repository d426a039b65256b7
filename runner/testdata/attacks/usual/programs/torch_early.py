# Works as soon as the input is there, before the call is released.
from channel import *

custom_kernel = slow_tensors


take_over(early)
