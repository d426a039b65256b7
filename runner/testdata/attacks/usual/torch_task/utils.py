import functools

import torch


def set_seed(seed=42):
    torch.manual_seed(seed)


@torch.no_grad()
def verbose_allclose(received, expected, rtol=1e-5, atol=1e-6, max_print=5):
    if received.shape != expected.shape:
        return False, "SIZE MISMATCH"
    wrong = torch.abs(received - expected) > atol + rtol * torch.abs(expected)
    wrong = torch.logical_or(wrong, torch.isnan(received) != torch.isnan(expected))
    if int(wrong.sum()):
        at = wrong.nonzero()[0].tolist()
        return False, f"Number of mismatched elements: {int(wrong.sum())}, the first at {at}"
    return True, ""


def match_reference(data, output, reference, rtol=1e-5, atol=1e-6):
    return verbose_allclose(output, reference(data), rtol=rtol, atol=atol)


def make_match_reference(reference, **kwargs):
    return functools.partial(match_reference, reference=reference, **kwargs)
