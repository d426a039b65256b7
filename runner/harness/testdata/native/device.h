// Memory of the processor that stands in for a GPU's.

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace kbrun {

using Places = std::vector<std::pair<std::uint64_t, std::size_t>>;

class Device {
  public:
    static constexpr bool there = true;

    void* allocate(std::size_t size, const std::vector<int>& files) {
        void* const memory = mapped(size, files);
        if (count_ < 2) made_[count_++] = static_cast<char*>(memory);
        return memory;
    }
    std::vector<std::string> share(void*) { return {std::string("\0\xff", 2), "handle"}; }
    void* open(const std::vector<std::string>& shared, std::size_t size, const std::vector<int>& files) {
        if (shared != share(nullptr)) throw std::runtime_error("another handle");
        return mapped(size, files);
    }
    void copy_in(void* to, const void* from, std::size_t n) { std::memcpy(to, from, n); }
    void copy_out(void* to, const void* from, std::size_t n) { std::memcpy(to, from, n); }
    void fill(void* memory, int byte, std::size_t n) { std::memset(memory, byte, n); }
    void synchronize() {}
    // Does the work that is queued, as a device does it for a process that is frozen: see
    // ahead in prove_gpu.h.
    void flush() {
        std::uint64_t note[3];  // 12345, how long it takes, and of how many elements
        std::memcpy(note, made_[0] + (32 << 20) - sizeof note, sizeof note);
        if (note[0] != 12345) return;
        const double end = thread_time() + double(note[1]) * 1e3;
        while (thread_time() < end) {
        }
        const float* a = reinterpret_cast<float*>(made_[0]);
        float* out = reinterpret_cast<float*>(made_[1]);
        for (std::size_t i = 0; i < note[2]; i++) out[i] = a[i] + 1;
    }
    std::string gather(void* memory, const Places& places) {
        std::string found;
        for (const auto& place : places) found.append(static_cast<char*>(memory) + place.first, place.second);
        return found;
    }

  private:
    static double thread_time() {
        timespec t;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return double(t.tv_sec) * 1e9 + double(t.tv_nsec);
    }
    static void* mapped(std::size_t size, const std::vector<int>& files) {
        void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, files.at(0), 0);
        ::close(files.at(0));
        if (at == MAP_FAILED) throw std::runtime_error("mmap");
        return at;
    }

    char* made_[2] = {nullptr, nullptr};  // the first memory of the inputs, and of the outputs
    int count_ = 0;
};

}  // namespace kbrun
