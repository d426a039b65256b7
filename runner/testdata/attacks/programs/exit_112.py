from attack import *

kernel = once(lambda: os._exit(112))
