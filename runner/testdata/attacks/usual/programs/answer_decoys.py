# Says done, then works. A thousand other arrays should get the places that are read.
from channel import *

MORE = 1000


def custom_kernel(data):
    return [slow(data)]


def call(sequence, raw):
    decoder, data, n = read(raw)
    answer = storages((1, 0, n), (1, n, 1)) + struct.pack("<BI", 7, MORE + 1)
    done_first(sequence, decoder, data, n, answer + leaf("f", 0, n // 4) + leaf("b", 1, 1) * MORE)


take_over(call)
