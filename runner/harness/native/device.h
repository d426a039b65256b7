// Memory on a device that judge and worker share. All that is peculiar to CUDA
// and ROCm stands in class Device. Compiled by any other compiler there is no
// device, and arrays lie in the processor's memory.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#if defined(__HIP__) || defined(__HIPCC__)
#include <hip/hip_runtime.h>
#define KBRUN_GPU(name) hip##name
#elif defined(__CUDACC__)
#include <cuda_runtime.h>
#define KBRUN_GPU(name) cuda##name
#endif

namespace kbrun {

using Places = std::vector<std::pair<std::uint64_t, std::size_t>>;  // where, and how many bytes

#ifdef KBRUN_GPU

namespace {

__global__ void gather_bytes(const unsigned char* from, const std::uint64_t* at, unsigned char* to, unsigned n) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[at[i]];
}

}  // namespace

class Device {
  public:
    static constexpr bool there = true;

    void* allocate(std::size_t size, const std::vector<int>&) {
        void* memory = nullptr;
        must(KBRUN_GPU(Malloc)(&memory, size));
        must(KBRUN_GPU(Memset)(memory, 0, size));
        synchronize();
        return memory;
    }
    // What open needs, as texts.
    std::vector<std::string> share(void* memory) {
        KBRUN_GPU(IpcMemHandle_t) handle;
        must(KBRUN_GPU(IpcGetMemHandle)(&handle, memory));
        return {std::string(reinterpret_cast<const char*>(&handle), sizeof handle)};
    }
    // The same memory in another process.
    void* open(const std::vector<std::string>& shared, std::size_t, const std::vector<int>&) {
        KBRUN_GPU(IpcMemHandle_t) handle;
        if (shared.size() != 1 || shared[0].size() != sizeof handle) throw std::runtime_error("not a handle of this system's");
        std::memcpy(&handle, shared[0].data(), sizeof handle);
        void* memory = nullptr;
        must(KBRUN_GPU(IpcOpenMemHandle)(&memory, handle, KBRUN_GPU(IpcMemLazyEnablePeerAccess)));
        return memory;
    }
    void copy_in(void* to, const void* from, std::size_t n) {
        must(KBRUN_GPU(Memcpy)(to, from, n, KBRUN_GPU(MemcpyHostToDevice)));
    }
    void copy_out(void* to, const void* from, std::size_t n) {
        must(KBRUN_GPU(Memcpy)(to, from, n, KBRUN_GPU(MemcpyDeviceToHost)));
    }
    void fill(void* memory, int byte, std::size_t n) { must(KBRUN_GPU(Memset)(memory, byte, n)); }
    // Waits for everything, and throws what went wrong since the last time.
    void synchronize() {
        must(KBRUN_GPU(DeviceSynchronize)());
        must(KBRUN_GPU(GetLastError)());
    }
    // Writes 256 MiB, so that no cache of the device holds the inputs.
    void flush() {
        constexpr std::size_t size = 256 << 20;
        if (!waste_) must(KBRUN_GPU(Malloc)(&waste_, size));
        fill(waste_, 1, size);
    }
    // The bytes at these places, one after the other.
    std::string gather(void* memory, const Places& places) {
        if (places.empty()) return "";
        const unsigned n = prepare(places);
        gather_bytes<<<(n + 255) / 256, 256>>>(static_cast<unsigned char*>(memory), index_, bytes_, n);
        std::string found(n, '\0');
        copy_out(&found[0], bytes_, n);
        return found;
    }

  private:
    void must(KBRUN_GPU(Error_t) error) {
        if (error) throw std::runtime_error(std::string(KBRUN_GPU(GetErrorName)(error)) + ": " + KBRUN_GPU(GetErrorString)(error));
    }
    // Puts the places on the device, unless they are there; returns how many bytes
    // they have together.
    unsigned prepare(const Places& places) {
        std::vector<std::uint64_t> index;
        for (const auto& place : places)
            for (std::size_t i = 0; i < place.second; i++) index.push_back(place.first + i);
        if (index == shown_) return unsigned(index.size());
        if (index.size() > room_) {
            KBRUN_GPU(Free)(index_);
            KBRUN_GPU(Free)(bytes_);
            must(KBRUN_GPU(Malloc)(reinterpret_cast<void**>(&index_), index.size() * sizeof index[0]));
            must(KBRUN_GPU(Malloc)(reinterpret_cast<void**>(&bytes_), index.size()));
            room_ = index.size();
        }
        copy_in(index_, index.data(), index.size() * sizeof index[0]);
        shown_ = std::move(index);
        return unsigned(shown_.size());
    }

    void* waste_ = nullptr;
    std::uint64_t* index_ = nullptr;
    unsigned char* bytes_ = nullptr;
    std::size_t room_ = 0;
    std::vector<std::uint64_t> shown_;
};

#else

class Device {
  public:
    static constexpr bool there = false;

    void* allocate(std::size_t, const std::vector<int>&) { return none(); }
    std::vector<std::string> share(void*) { return {none()}; }
    void* open(const std::vector<std::string>&, std::size_t, const std::vector<int>&) { return none(); }
    void copy_in(void*, const void*, std::size_t) { none(); }
    void copy_out(void*, const void*, std::size_t) { none(); }
    void fill(void*, int, std::size_t) { none(); }
    void synchronize() {}
    // Writes 256 MiB, so that no cache of this core holds the inputs.
    void flush() { waste_.assign(std::size_t(256) << 20, 1); }
    std::string gather(void*, const Places&) { return none(); }

  private:
    static char* none() { throw std::runtime_error("this program was compiled for no device"); }

    std::vector<unsigned char> waste_;
};

#endif

}  // namespace kbrun
