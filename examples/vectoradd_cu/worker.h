// The worker: the half of this program that runs the submission, in a process
// of its own, and the pipes between it and the judge.
#pragma once

#include <cuda_runtime.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "task.h"

inline std::int64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return std::int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

// Judge to worker: Request, then count sizes (u64), then the elements.
struct Request {
    std::uint64_t count;  // of inputs
};

// Worker to judge: Answer, then `size` floats, or `size` characters of trouble.
struct Answer {
    enum Kind : std::uint64_t { kOutput = 1, kTrouble, kNoDevice };
    std::uint64_t kind, kernel_ns, size;
};

enum class Io { kDone, kClosed, kLate };

// Moves exactly size bytes, in either direction, before the deadline (now_ns;
// 0 is none). alive is asked now and then whether waiting still makes sense.
template <class Move, class Alive>
Io transfer(int fd, short event, char* at, std::size_t size, std::int64_t deadline, Move move, Alive alive) {
    while (size > 0) {
        pollfd wait{fd, event, 0};
        while (poll(&wait, 1, 50) == 0) {
            if (deadline && now_ns() > deadline) return Io::kLate;
            if (!alive()) return Io::kClosed;
        }
        const ssize_t moved = move(fd, at, size < 65536 ? size : 65536);
        if (moved < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (moved <= 0) return Io::kClosed;
        at += moved;
        size -= std::size_t(moved);
    }
    return Io::kDone;
}

template <class Alive>
Io read_all(int fd, void* to, std::size_t size, std::int64_t deadline, Alive alive) {
    return transfer(fd, POLLIN, static_cast<char*>(to), size, deadline,
                    [](int f, char* p, std::size_t n) { return read(f, p, n); }, alive);
}

template <class Alive>
Io write_all(int fd, const void* from, std::size_t size, std::int64_t deadline, Alive alive) {
    return transfer(fd, POLLOUT, const_cast<char*>(static_cast<const char*>(from)), size, deadline,
                    [](int f, char* p, std::size_t n) { return write(f, p, n); }, alive);
}

class Worker {
  public:
    Worker(int in, int out) : in_(in), out_(out) {}

    // Answers requests until the judge hangs up.
    int work() {
        Request request;
        while (get(&request, sizeof request)) {
            std::vector<std::uint64_t> sizes(request.count);
            if (!get(sizes.data(), sizes.size() * sizeof(std::uint64_t))) break;
            Data data;
            for (auto size : sizes) {
                data.emplace_back(size);
                if (!get(data.back().data(), size * sizeof(float))) return 1;
            }
            if (!answer(data)) break;
        }
        return 0;
    }

  private:
    bool get(void* to, std::size_t size) { return read_all(in_, to, size, 0, [] { return true; }) == Io::kDone; }
    bool put(const void* from, std::size_t size) {
        return write_all(out_, from, size, 0, [] { return true; }) == Io::kDone;
    }

    bool answer(const Data& data) {
        std::vector<std::size_t> sizes;
        for (const auto& input : data) sizes.push_back(input.size());
        std::vector<float> output(output_size(sizes));
        std::vector<float*> device(data.size() + 1, nullptr);
        std::uint64_t kernel_ns = 0;
        const char* doing = "";
        const cudaError_t err = run(data, output, device, kernel_ns, doing);
        for (float* memory : device) cudaFree(memory);
        if (err == cudaSuccess) {
            const Answer head{Answer::kOutput, kernel_ns, output.size()};
            return put(&head, sizeof head) && put(output.data(), output.size() * sizeof(float));
        }
        const std::string text = std::string(doing) + ": " + cudaGetErrorString(err);
        const Answer head{called_ ? Answer::kTrouble : Answer::kNoDevice, 0, text.size()};
        return put(&head, sizeof head) && put(text.data(), text.size());
    }

    // Inputs to the device, the kernel, the output back. On failure doing says
    // in which of these it was.
    cudaError_t run(const Data& data, std::vector<float>& output, std::vector<float*>& device,
                    std::uint64_t& kernel_ns, const char*& doing) {
        doing = "copying the inputs to the device";
        for (std::size_t i = 0; i < data.size(); i++) {
            const std::size_t bytes = data[i].size() * sizeof(float);
            if (auto err = cudaMalloc(reinterpret_cast<void**>(&device[i]), bytes)) return err;
            if (auto err = cudaMemcpy(device[i], data[i].data(), bytes, cudaMemcpyHostToDevice)) return err;
        }
        const std::size_t bytes = output.size() * sizeof(float);
        if (auto err = cudaMalloc(reinterpret_cast<void**>(&device.back()), bytes)) return err;
        // 0xff bytes are NaN: what the kernel leaves out is wrong, always.
        if (auto err = cudaMemset(device.back(), 0xff, bytes)) return err;
        if (auto err = flush_cache()) return err;

        doing = "custom_kernel";
        called_ = true;
        if (auto err = cudaDeviceSynchronize()) return err;
        const std::int64_t start = now_ns();
        call_kernel(device, device.back(), output.size());
        if (auto err = cudaDeviceSynchronize()) return err;  // all streams
        kernel_ns = std::uint64_t(now_ns() - start);
        if (auto err = cudaGetLastError()) return err;
        doing = "copying the output from the device";
        return cudaMemcpy(output.data(), device.back(), bytes, cudaMemcpyDeviceToHost);
    }

    // Overwrites twice the size of the L2 cache, so that it holds no input.
    cudaError_t flush_cache() {
        int l2 = 0, id = 0;
        if (auto err = cudaGetDevice(&id)) return err;
        if (auto err = cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, id)) return err;
        if (l2 <= 0) return cudaSuccess;
        void* scratch = nullptr;
        if (auto err = cudaMalloc(&scratch, 2 * std::size_t(l2))) return err;
        const cudaError_t err = cudaMemset(scratch, 0, 2 * std::size_t(l2));
        const cudaError_t freed = cudaFree(scratch);
        return err ? err : freed;
    }

    int in_, out_;
    bool called_ = false;  // custom_kernel ran before: errors may be its own
};

// Turns the forked child into a worker: it forgets POPCORN_FD and
// POPCORN_SEED, where they stood too, and has no capability that would let it
// look into the judge. Runs before any code of the submission.
inline void become_worker(int report_fd, char** environment) {
    if (report_fd >= 0) close(report_fd);
    for (char** entry = environment; *entry;) {
        if (std::strncmp(*entry, "POPCORN_", 8) != 0) {
            entry++;
            continue;
        }
        std::memset(*entry, 0, std::strlen(*entry));  // /proc/self/environ shows this memory
        for (char** rest = entry; *rest; rest++) rest[0] = rest[1];
    }
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const std::uint32_t head[2] = {0x20080522, 0}, none[6] = {};
    syscall(SYS_capset, head, none);
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);  // the judge's being 0 was inherited
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
}
