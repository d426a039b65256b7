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
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "task.h"

namespace {  // no symbols: see cases.h

inline std::int64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return std::int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

// Judge to worker: Request, then count sizes (u64), then the elements.
struct Request {
    // kEcho: nothing is computed, and no code of the submission has run yet;
    // kEnter ends that, and has no answer.
    enum Kind : std::uint64_t { kEcho = 1, kEnter, kCall };
    std::uint64_t kind, count;  // of inputs
};

// Worker to judge: Answer, then `size` floats, or `size` characters of trouble.
struct Answer {
    enum Kind : std::uint64_t { kOutput = 1, kTrouble, kNoDevice };
    std::uint64_t kind, kernel_ns, size;
};

constexpr std::size_t kPipeSize = 1 << 20;  // bytes that a pipe is asked to hold

enum class Io { kDone, kClosed, kLate };

// Moves exactly size bytes, in either direction, before the deadline (now_ns;
// 0 is none). alive is asked now and then whether waiting still makes sense.
template <class Move, class Alive>
Io transfer(int fd, short event, char* at, std::size_t size, std::int64_t deadline, Move move, Alive alive) {
    while (size > 0) {
        pollfd wait{fd, event, 0};
        const int ready = poll(&wait, 1, 50);
        if (deadline && now_ns() > deadline) return Io::kLate;  // a trickle is no excuse
        if (ready == 0) {
            if (!alive()) return Io::kClosed;
            continue;
        }
        const ssize_t moved = move(fd, at, size < kPipeSize ? size : kPipeSize);
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

    // Answers requests until the judge says kEnter or hangs up.
    int work() {
        Request request;
        while (get(&request, sizeof request) && request.kind != Request::kEnter) {
            std::vector<std::uint64_t> sizes(request.count);
            if (!get(sizes.data(), sizes.size() * sizeof(std::uint64_t))) break;
            data_.resize(sizes.size());
            for (std::size_t i = 0; i < sizes.size(); i++) {
                data_[i].resize(sizes[i]);
                if (!get(data_[i].data(), sizes[i] * sizeof(float))) return 1;
            }
            output_.resize(output_size({sizes.begin(), sizes.end()}));
            if (!(request.kind == Request::kEcho ? put(0) : answer())) break;
        }
        return 0;
    }

  private:
    bool get(void* to, std::size_t size) { return read_all(in_, to, size, 0, [] { return true; }) == Io::kDone; }
    bool put(const void* from, std::size_t size) {
        return write_all(out_, from, size, 0, [] { return true; }) == Io::kDone;
    }

    bool put(std::uint64_t kernel_ns) {
        const Answer head{Answer::kOutput, kernel_ns, output_.size()};
        return put(&head, sizeof head) && put(output_.data(), output_.size() * sizeof(float));
    }

    bool answer() {
        std::uint64_t kernel_ns = 0;
        const char* doing = "";
        const cudaError_t err = run(kernel_ns, doing);
        std::fflush(nullptr);  // the worker is killed in the end
        if (err == cudaSuccess) return put(kernel_ns);
        const std::string text = std::string(doing) + ": " + cudaGetErrorString(err);
        const Answer head{called_ ? Answer::kTrouble : Answer::kNoDevice, 0, text.size()};
        return put(&head, sizeof head) && put(text.data(), text.size());
    }

    // Inputs to the device, the kernel, the output back. On failure doing says
    // in which of these it was.
    cudaError_t run(std::uint64_t& kernel_ns, const char*& doing) {
        doing = "copying the inputs to the device";
        device_.resize(data_.size() + 1);
        std::vector<float*> in;
        for (std::size_t i = 0; i < data_.size(); i++) {
            const std::size_t bytes = data_[i].size() * sizeof(float);
            if (auto err = device_[i].reserve(bytes)) return err;
            in.push_back(static_cast<float*>(device_[i].at));
            if (auto err = cudaMemcpy(in[i], data_[i].data(), bytes, cudaMemcpyHostToDevice)) return err;
        }
        const std::size_t bytes = output_.size() * sizeof(float);
        if (auto err = device_.back().reserve(bytes)) return err;
        float* const out = static_cast<float*>(device_.back().at);
        // 0xff bytes are NaN: what the kernel leaves out is wrong, always.
        if (auto err = cudaMemset(out, 0xff, bytes)) return err;
        if (auto err = flush_cache()) return err;

        doing = "custom_kernel";
        called_ = true;
        if (auto err = cudaDeviceSynchronize()) return err;
        const std::int64_t start = now_ns();
        call_kernel(in, out, output_.size());
        if (auto err = cudaDeviceSynchronize()) return err;  // all streams
        kernel_ns = std::uint64_t(now_ns() - start);
        if (auto err = cudaGetLastError()) return err;
        doing = "copying the output from the device";
        return cudaMemcpy(output_.data(), out, bytes, cudaMemcpyDeviceToHost);
    }

    // Overwrites twice the size of the L2 cache, so that it holds no input.
    cudaError_t flush_cache() {
        int l2 = 0, id = 0;
        if (auto err = cudaGetDevice(&id)) return err;
        if (auto err = cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, id)) return err;
        if (l2 <= 0) return cudaSuccess;
        if (auto err = scratch_.reserve(2 * std::size_t(l2))) return err;
        return cudaMemset(scratch_.at, 0, 2 * std::size_t(l2));
    }

    // Memory on the device; that and the vectors are kept from call to call, as
    // new memory takes time that varies, and that the judge's clock sees.
    struct Memory {
        void* at = nullptr;
        std::size_t size = 0;

        cudaError_t reserve(std::size_t bytes) {
            if (bytes <= size) return cudaSuccess;
            cudaFree(at);
            at = nullptr, size = 0;
            if (auto err = cudaMalloc(&at, bytes)) return err;
            size = bytes;
            return cudaSuccess;
        }
    };

    int in_, out_;
    Data data_;
    std::vector<float> output_;
    std::vector<Memory> device_;
    Memory scratch_;
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

}  // namespace
