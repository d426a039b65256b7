// The worker of a C++ task, before there is a submission: opens the library with
// the submission when it is told to, and calls its kernel on inputs that lie in
// shared memory. Nothing it says is believed; see tree.go and session.go.
//
// The submission is no part of this program until then: what an empty call takes
// is measured before.

#include <dlfcn.h>

namespace {

using namespace kbrun;

enum Mode : std::uint8_t { kCall = 0, kEcho = 1, kBatch = 2 };

// kbrun_call of call.cu, which is compiled with the submission.
using Kernel = void (*)(const void* params, void* const* inputs, void* const* outputs);

// One call of the kernel: its own params, where its inputs lie, and its outputs.
struct Item {
    std::vector<unsigned char> params;
    std::vector<void*> inputs, outputs;
};

class Worker {
  public:
    Worker(int channel, int page) : link_(channel), page_(page, kPage) { link_.send("H"); }

    void serve() {
        std::string raw;
        while (link_.receive(raw, files_)) {
            switch (raw[0]) {
            case 'A':
                arena(raw);
                break;
            case 'L':
                link_.send(load());
                break;
            case 'P':
                call(raw);
                break;
            default:
                link_.send(on_device(raw));
            }
        }
    }

  private:
    void arena(const std::string& raw) {
        Reader reader(raw, 1);
        const int index = reader.take<std::uint8_t>();
        arenas_[index & 1] = Arena(files_.at(0), reader.take<std::uint64_t>());
        arenas_[index & 1].touch();
        link_.send("A");
    }

    std::string on_device(const std::string& raw) {
        try {
            Reader reader(raw, 1);
            const int index = reader.take<std::uint8_t>() & 1;
            const auto at = reader.take<std::uint64_t>();
            if (raw[0] == 'D') { // opens an arena: its size, and what it is opened with
                std::vector<std::string> shared(reader.take<std::uint16_t>());
                for (auto& text : shared) text = reader.text();
                on_device_[index] = static_cast<unsigned char*>(device_.open(shared, at, files_));
                sizes_[index] = at;
            } else if (raw[0] == 'w') {
                const std::size_t n = raw.size() - 10;
                device_.copy_in(on_device_[index] + at, reader.bytes(n), n);
            } else { // r
                std::string bytes(reader.take<std::uint64_t>(), '\0');
                device_.copy_out(&bytes[0], on_device_[index] + at, bytes.size());
                return "r" + bytes;
            }
            device_.synchronize();
            return raw.substr(0, 1);
        } catch (const std::exception& error) {
            return raised("Error", error.what());
        }
    }

    std::string load() {
        void* library = dlopen("./submission.so", RTLD_NOW | RTLD_LOCAL);
        if (library) kernel_ = reinterpret_cast<Kernel>(dlsym(library, "kbrun_call"));
        if (kernel_) return "L";
        const char* why = dlerror();
        return raised("LoadError", why ? why : "the library has no kernel");
    }

    void call(const std::string& raw) {
        Reader reader(raw, 1);
        const auto mode = reader.take<std::uint8_t>();
        const auto sequence = reader.take<std::uint32_t>();
        std::vector<Item> items;
        std::vector<Piece> outputs;
        const std::uint64_t needed = mode == kEcho ? 0 : prepare(reader, items, outputs);
        const int out = Device::there ? kOnDevice + kOutput : kOutput;
        const bool room = needed <= (Device::there ? sizes_[kOutput] : arenas_[kOutput].size());
        std::string answer;
        link_.send("W");
        while (word(page_, kRelease) != sequence) {
        }
        try {
            if (room) {
                for (const Item& item : items) kernel_(item.params.data(), item.inputs.data(), item.outputs.data());
                device_.synchronize();
            }
        } catch (const std::exception& error) {
            answer = raised("Error", error.what());
        } catch (...) {
            answer = raised("Error", "something that is no std::exception");
        }
        set_word(page_, kDone, sequence);
        if (!room) {
            answer = "T";
            put(answer, std::uint8_t(out));
            put(answer, needed);
        } else if (answer.empty()) {
            answer = "V" + tree(outputs);
        }
        link_.send(answer);
    }

    // Reads what the judge's Master::message wrote; returns the bytes that the
    // outputs need.
    std::uint64_t prepare(Reader& reader, std::vector<Item>& items, std::vector<Piece>& outputs) {
        unsigned char* const in = Device::there ? on_device_[kInput] : arenas_[kInput].at();
        unsigned char* const out = Device::there ? on_device_[kOutput] : arenas_[kOutput].at();
        std::uint64_t next = 0;
        items.resize(reader.take<std::uint32_t>());
        for (Item& item : items) {
            item.params.resize(reader.take<std::uint32_t>());
            std::memcpy(item.params.data(), reader.bytes(item.params.size()), item.params.size());
            for (auto left = reader.take<std::uint16_t>(); left > 0; left--) {
                item.inputs.push_back(in + reader.take<std::uint64_t>());
                reader.take<std::uint64_t>();  // its size, which the task's Params tell
            }
            for (auto left = reader.take<std::uint16_t>(); left > 0; left--) {
                const auto bytes = reader.take<std::uint64_t>();
                item.outputs.push_back(out + next);
                outputs.push_back({Device::there ? kOnDevice + kOutput : kOutput, next, bytes});
                next = aligned(next + bytes);
            }
        }
        return next;
    }

    // All outputs as a tuple of bytes, in the format of tree.go.
    static std::string tree(const std::vector<Piece>& outputs) {
        std::string out;
        put(out, std::uint16_t(outputs.size()));
        for (const Piece& p : outputs) {
            put(out, std::uint8_t(p.arena));
            put(out, p.start);
            put(out, p.bytes);
        }
        put(out, std::uint8_t(6));
        put(out, std::uint32_t(outputs.size()));
        for (std::size_t i = 0; i < outputs.size(); i++) {
            // An array; as a tensor of uint8, that requires no gradient; its device,
            // dimensions and storage; offset, length, stride.
            const std::uint8_t head[] = {9, 1, 1, 0, std::uint8_t(outputs[i].arena / kOnDevice), 1};
            out.append(reinterpret_cast<const char*>(head), sizeof head);
            put(out, std::uint16_t(i));
            put(out, std::uint64_t(0));
            put(out, outputs[i].bytes);
            put(out, std::uint64_t(1));
        }
        return out;
    }

    Link link_;
    Arena page_;
    std::vector<int> files_;
    Arena arenas_[2];
    unsigned char* on_device_[2] = {nullptr, nullptr};
    std::uint64_t sizes_[2] = {0, 0};
    Device device_;
    Kernel kernel_ = nullptr;
};

}  // namespace

int main() {
    Link parent(3);
    std::string raw;
    std::vector<int> files;
    if (!parent.receive(raw, files)) return 0;
    parent.send("R" + texts({"1"}));
    if (!parent.receive(raw, files) || files.size() != 4) return 0;
    parent.close();
    const Json order = JsonReader(raw).value();
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    dup2(files[2], 1);
    dup2(files[3], 2);
    close(files[2]);
    close(files[3]);
    setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // what was printed stays when the process is killed
    const Json& environ = order["environ"];
    for (std::size_t i = 0; i < environ.names.size(); i++) setenv(environ.names[i].c_str(), environ.values[i].text.c_str(), 1);
    if (chdir(order["work"].text.c_str())) return 70;
    Worker(files[0], files[1]).serve();
    std::fflush(nullptr);
    _exit(0);
}
