// What the submission provides, and how it is called. Judge and submission are
// compiled with this file, each for itself.
#pragma once

#include <cstddef>

// The submission: writes a[i] + b[i] to c[i] for i < n. All three are device
// memory. Work may be left running when it returns, on any stream.
void custom_kernel(const float* a, const float* b, float* c, std::size_t n);

// What a call gets beside its arrays; copied byte by byte.
struct Params {
    std::size_t n;
};

// Calls the kernel. The arrays are device memory, in the order in which
// generate_input gives inputs and outputs.
inline void call_kernel(const Params& params, void* const* inputs, void* const* outputs) {
    custom_kernel(static_cast<const float*>(inputs[0]), static_cast<const float*>(inputs[1]), static_cast<float*>(outputs[0]), params.n);
}
