// Memory of the processor that stands in for a GPU's.

#include <sys/mman.h>
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

    void* allocate(std::size_t size, const std::vector<int>& files) { return mapped(size, files); }
    std::vector<std::string> share(void*) { return {std::string("\0\xff", 2), "handle"}; }
    void* open(const std::vector<std::string>& shared, std::size_t size, const std::vector<int>& files) {
        if (shared != share(nullptr)) throw std::runtime_error("another handle");
        return mapped(size, files);
    }
    void copy_in(void* to, const void* from, std::size_t n) { std::memcpy(to, from, n); }
    void copy_out(void* to, const void* from, std::size_t n) { std::memcpy(to, from, n); }
    void fill(void* memory, int byte, std::size_t n) { std::memset(memory, byte, n); }
    void synchronize() {}
    void flush() {}
    std::string gather(void* memory, const Places& places) {
        std::string found;
        for (const auto& place : places) found.append(static_cast<char*>(memory) + place.first, place.second);
        return found;
    }

  private:
    static void* mapped(std::size_t size, const std::vector<int>& files) {
        void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, files.at(0), 0);
        ::close(files.at(0));
        if (at == MAP_FAILED) throw std::runtime_error("mmap");
        return at;
    }
};

}  // namespace kbrun
