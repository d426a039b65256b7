// What prove.cu knows of the GPU. The tests' stand-in has others.

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <thread>
#include <vector>

#if defined(__HIP__) || defined(__HIPCC__)
#include <hip/hip_runtime.h>
#define GPU(name) hip##name
#else
#include <cuda_runtime.h>
#define GPU(name) cuda##name
#endif

namespace {

void must(GPU(Error_t) error) {
    if (error) throw std::runtime_error(GPU(GetErrorString)(error));
}

void wait() { must(GPU(DeviceSynchronize)()); }

__global__ void spin_kernel(long long cycles) {
    const long long begun = clock64();
    while (clock64() - begun < cycles) {
    }
}

__global__ void add_kernel(const float* a, float* out, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + 1;
}

// The median time of work by the GPU's events, in nanoseconds.
template <class Work>
double events(Work work, int repeats) {
    GPU(Event_t) begun, ended;
    must(GPU(EventCreate)(&begun));
    must(GPU(EventCreate)(&ended));
    std::vector<double> found;
    for (int i = 0; i < repeats; i++) {
        wait();
        must(GPU(EventRecord)(begun, 0));
        work();
        must(GPU(EventRecord)(ended, 0));
        wait();
        float milliseconds = 0;
        must(GPU(EventElapsedTime)(&milliseconds, begun, ended));
        found.push_back(milliseconds * 1e6);
    }
    std::sort(found.begin(), found.end());
    return found[found.size() / 2];
}

// Works for a time, in microseconds.
void spin(unsigned us, GPU(Stream_t) stream = nullptr) {
    static const double rate = [] {  // cycles in a microsecond
        const long long cycles = 2'000'000;
        const auto work = [=] { spin_kernel<<<1, 1>>>(cycles); };
        work();
        return double(cycles) / events(work, 20) * 1000;
    }();
    spin_kernel<<<1, 1, 0, stream>>>((long long)(us * rate));
    must(GPU(GetLastError)());
}

void add(const float* a, float* out, std::size_t n, GPU(Stream_t) stream = nullptr) {
    add_kernel<<<unsigned(n + 255) / 256, 256, 0, stream>>>(a, out, unsigned(n));
    must(GPU(GetLastError)());
}

void fill(void* memory, int byte, std::size_t size) { must(GPU(Memset)(memory, byte, size)); }

void copy_out(void* to, const void* from, std::size_t size) { must(GPU(Memcpy)(to, from, size, GPU(MemcpyDeviceToHost))); }

// Keeps 40 kernels queued on a second stream. Each computes the output of whatever input
// is there then.
void ahead(const float* a, float* out, std::size_t n, unsigned us) {
    static bool begun = false;
    if (begun) return;
    begun = true;
    spin(1);  // measures the GPU's rate
    std::thread([=] {
        GPU(Stream_t) stream;
        must(GPU(StreamCreateWithFlags)(&stream, GPU(StreamNonBlocking)));
        GPU(Event_t) queued[40];
        for (auto& event : queued) must(GPU(EventCreate)(&event));
        for (unsigned i = 0;; i = (i + 1) % 40) {
            must(GPU(EventSynchronize)(queued[i]));
            spin(us, stream);
            add(a, out, n, stream);
            must(GPU(EventRecord)(queued[i], stream));
        }
    }).detach();
}

}  // namespace
