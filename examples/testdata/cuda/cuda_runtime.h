// A stand-in for the CUDA runtime, for tests on machines without nvcc or a GPU:
// device memory is host memory, and a kernel runs one thread after the other.
// It knows what the examples use and no more.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>

#define __global__ static

enum cudaError_t { cudaSuccess = 0, cudaErrorUnknown = 999 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
enum cudaDeviceAttr { cudaDevAttrL2CacheSize };

struct dim3 {
    unsigned x;
};
inline thread_local dim3 blockIdx, threadIdx, gridDim, blockDim;

inline cudaError_t cudaMalloc(void** memory, std::size_t size) {
    *memory = std::malloc(size);
    return *memory ? cudaSuccess : cudaErrorUnknown;
}
inline cudaError_t cudaFree(void* memory) { return std::free(memory), cudaSuccess; }
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size, cudaMemcpyKind) {
    return std::memcpy(to, from, size), cudaSuccess;
}
inline cudaError_t cudaMemset(void* memory, int value, std::size_t size) {
    return std::memset(memory, value, size), cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaGetDevice(int* id) { return *id = 0, cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 1 << 20, cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t) { return "stand-in error"; }

// kernel<<<grid, block>>>(arguments), as the test rewrites it for g++.
template <class Kernel, class... Arguments>
void standInLaunch(unsigned grid, unsigned block, Kernel kernel, Arguments... arguments) {
    gridDim.x = grid;
    blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < block; threadIdx.x++) kernel(arguments...);
}
