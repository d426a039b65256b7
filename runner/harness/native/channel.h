// What judge and worker share: messages, and the memory in which arrays lie.
// tree.go, session.go and worker.go are the other end. Numbers are little endian,
// as every machine with a GPU has them.

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace kbrun {

constexpr std::size_t kMaxMessage = 128 << 10;  // bytes; one datagram
constexpr std::size_t kAlign = 256;             // kernels assume 16 or 32
constexpr std::size_t kMaxText = 4096;          // bytes of one text
constexpr std::size_t kPage = 4096;
constexpr int kRelease = 0, kDone = 16;         // words of the page, a cache line apart
constexpr int kInput = 0, kOutput = 1;          // arenas; on a device 2 more
constexpr int kOnDevice = 2;

inline std::uint64_t aligned(std::uint64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

// Bytes of a message, read from the front.
class Reader {
  public:
    explicit Reader(const std::string& raw, std::size_t at = 0) : raw_(raw), at_(at) {}

    template <class T>
    T take() {
        T value;
        std::memcpy(&value, bytes(sizeof value), sizeof value);
        return value;
    }
    const char* bytes(std::size_t n) {
        if (n > raw_.size() - at_) throw std::runtime_error("a message that is cut short");
        at_ += n;
        return raw_.data() + at_ - n;
    }
    std::string text() {
        const auto n = take<std::uint16_t>();
        return {bytes(n), n};
    }

  private:
    const std::string& raw_;
    std::size_t at_;
};

template <class T>
void put(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// A list of texts.
inline std::string texts(const std::vector<std::string>& list) {
    std::string out;
    put(out, std::uint16_t(list.size()));
    for (const auto& text : list) {
        put(out, std::uint16_t(std::min(text.size(), kMaxText)));
        out.append(text, 0, kMaxText);
    }
    return out;
}

// What is told of an exception: its type, what it says, and no module or frame.
inline std::string raised(const std::string& type, const std::string& what) { return "X" + texts({type, what, ""}); }

// One end of a pair of sockets that keep messages whole.
class Link {
  public:
    explicit Link(int fd) : fd_(fd), buffer_(kMaxMessage, '\0') {}

    void send(const std::string& raw) {
        for (std::size_t sent = 0; sent == 0 && !raw.empty();) {
            const ssize_t n = ::send(fd_, raw.data(), raw.size(), MSG_NOSIGNAL);
            if (n < 0 && errno != EINTR) _exit(0);  // nobody is there any more
            sent = n < 0 ? 0 : std::size_t(n);
        }
    }
    // One message and its descriptors; false when the other end is gone.
    bool receive(std::string& raw, std::vector<int>& files) {
        alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
        iovec piece{&buffer_[0], buffer_.size()};
        msghdr message{};
        message.msg_iov = &piece, message.msg_iovlen = 1;
        message.msg_control = control, message.msg_controllen = sizeof control;
        ssize_t n;
        do n = recvmsg(fd_, &message, MSG_CMSG_CLOEXEC);
        while (n < 0 && errno == EINTR);
        if (n <= 0) return false;
        raw.assign(buffer_, 0, std::size_t(n));
        files.clear();
        for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
            if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
            files.resize((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            std::memcpy(files.data(), CMSG_DATA(c), files.size() * sizeof(int));
        }
        return true;
    }
    // Reports whether a message, or the other end's end, waits.
    bool waits(int milliseconds = 0) {
        pollfd wait{fd_, POLLIN, 0};
        return poll(&wait, 1, milliseconds) > 0;
    }
    void close() { ::close(fd_); }

  private:
    int fd_;
    std::string buffer_;
};

// A piece of memory that two processes share.
class Arena {
  public:
    Arena() = default;
    Arena(int fd, std::size_t size) : size_(size) {
        void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ::close(fd);
        if (at == MAP_FAILED) throw std::runtime_error("mapping shared memory: " + std::string(std::strerror(errno)));
        at_ = static_cast<unsigned char*>(at);
    }
    Arena(Arena&& other) noexcept { *this = std::move(other); }
    Arena& operator=(Arena&& other) noexcept {
        std::swap(at_, other.at_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~Arena() {
        if (at_) munmap(at_, size_);
    }

    unsigned char* at(std::uint64_t start = 0) const { return at_ + start; }
    std::size_t size() const { return size_; }
    bool holds(std::uint64_t start, std::uint64_t bytes) const { return start <= size_ && bytes <= size_ - start; }
    // Gets every page, so that no clock sees the first touch.
    void touch() {
        for (std::size_t i = 0; i < size_; i += kPage) {
            volatile unsigned char* page = at_ + i;
            *page = *page;
        }
    }

  private:
    unsigned char* at_ = nullptr;
    std::size_t size_ = 0;
};

// One value of kbrun's orders, in JSON. They are well formed: kbrun wrote them.
struct Json {
    std::string text;                // of a number, a word or a string
    bool is_null = false;
    std::vector<std::string> names;  // of an object's values
    std::vector<Json> values;        // of an object or a list

    const Json& operator[](const char* name) const {
        for (std::size_t i = 0; i < names.size(); i++)
            if (names[i] == name) return values[i];
        throw std::runtime_error(std::string("an order without ") + name);
    }
    std::uint64_t number() const { return std::strtoull(text.c_str(), nullptr, 10); }
};

class JsonReader {
  public:
    explicit JsonReader(const std::string& raw) : raw_(raw) {}

    Json value() {
        Json v;
        switch (next()) {
        case '{':
            members('}', [&] {
                v.names.push_back(string());
                expect(':');
                v.values.push_back(value());
            });
            break;
        case '[':
            members(']', [&] { v.values.push_back(value()); });
            break;
        case '"':
            v.text = string();
            break;
        default:
            for (; at_ < raw_.size() && !std::strchr(",]} \t\n", raw_[at_]); at_++) v.text += raw_[at_];
            v.is_null = v.text == "null";
        }
        return v;
    }
    std::size_t at() const { return at_; }

  private:
    char next() {
        while (at_ < raw_.size() && std::strchr(" \t\n", raw_[at_])) at_++;
        if (at_ >= raw_.size()) throw std::runtime_error("an order that is cut short");
        return raw_[at_];
    }
    void expect(char c) {
        if (next() != c) throw std::runtime_error("an order that is no JSON");
        at_++;
    }
    template <class Member>
    void members(char end, Member member) {
        at_++;
        if (next() == end) {
            at_++;
            return;
        }
        for (;;) {
            member();
            const char c = next();
            at_++;
            if (c == end) return;
            if (c != ',') throw std::runtime_error("an order that is no JSON");
        }
    }
    std::string string() {
        expect('"');
        std::string out;
        while (raw_.at(at_) != '"') {
            char c = raw_[at_++];
            if (c == '\\') {
                c = raw_.at(at_++);
                const char* known = std::strchr("n\nt\tr\rb\bf\f", c);
                if (c == 'u') {
                    utf8(out, unsigned(std::stoul(raw_.substr(at_, 4), nullptr, 16)));
                    at_ += 4;
                    continue;
                }
                if (known) c = known[1];
            }
            out += c;
        }
        at_++;
        return out;
    }
    static void utf8(std::string& out, unsigned c) {
        if (c < 0x80) {
            out += char(c);
        } else if (c < 0x800) {
            out += char(0xc0 | c >> 6);
            out += char(0x80 | (c & 0x3f));
        } else {
            out += char(0xe0 | c >> 12);
            out += char(0x80 | (c >> 6 & 0x3f));
            out += char(0x80 | (c & 0x3f));
        }
    }

    const std::string& raw_;
    std::size_t at_ = 0;
};

inline std::uint32_t word(const Arena& page, int index) {
    return __atomic_load_n(reinterpret_cast<std::uint32_t*>(page.at()) + index, __ATOMIC_ACQUIRE);
}
inline void set_word(const Arena& page, int index, std::uint32_t value) {
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(page.at()) + index, value, __ATOMIC_RELEASE);
}

// One piece of an arena, in bytes.
struct Piece {
    int arena;
    std::uint64_t start, bytes;

    bool operator==(const Piece& o) const { return arena == o.arena && start == o.start && bytes == o.bytes; }
};

}  // namespace kbrun
