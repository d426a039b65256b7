from attack import *

custom_kernel = kernel = once(lambda: strike(signal.SIGKILL))
