# Says done, then works. Two hundred values of one key should get the places that
# are read, and the last one counts.
from channel import *

MORE = 200


def custom_kernel(data):
    return {"c": slow(data)}


def call(sequence, raw):
    decoder, data, n = read(raw)
    key = struct.pack("<BI", 5, 1) + b"c"
    answer = storages((1, 0, n), (1, n, 1)) + struct.pack("<BI", 8, MORE + 1)
    done_first(sequence, decoder, data, n, answer + (key + leaf("b", 1, 1)) * MORE + key + leaf("f", 0, n // 4))


take_over(call)
