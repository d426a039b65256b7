// Right, but slow: one block of one warp walks through everything, and does it
// several times.

#include "task.h"

__global__ void add(const float* a, const float* b, float* c, std::size_t n) {
    for (std::size_t i = threadIdx.x; i < n; i += blockDim.x) c[i] = a[i] + b[i];
}

void custom_kernel(const float* a, const float* b, float* c, std::size_t n) {
    for (int round = 0; round < 4; round++) add<<<1, 32>>>(a, b, c, n);
}
