# Says done, works, and sends a number with the message.
from channel import *


def custom_kernel(data):
    done(worker.words[0])
    work()
    return sum(data[0])
