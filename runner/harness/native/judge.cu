// The judge of a C++ task: makes inputs with the task's reference and checks
// outputs. It never sees the submission, only memory that both share, and every
// byte of it is copied before it is looked at. judge.py does the same for Python.
#include "kbrun.h"
#include "reference.cuh"
#include "task.h"

namespace {

using namespace kbrun;

static_assert(std::is_trivially_copyable<Params>::value, "task.h: Params is copied byte by byte");
static_assert(std::is_void<decltype(call_kernel(std::declval<const Params&>(), std::declval<void* const*>(), std::declval<void* const*>()))>::value,
              "task.h: want void call_kernel(const Params&, void* const* inputs, void* const* outputs)");

// The task's own files failed.
struct TaskFault : std::runtime_error {
    using std::runtime_error::runtime_error;
};
// The machine has no device to share.
struct NoDevice : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// One input, or a batch of them, and where its arrays lie.
struct Master {
    std::vector<Case> cases;
    std::vector<Input<Params>> items;  // one for each
    std::vector<Piece> inputs, outputs;  // of all items, in order
    std::uint64_t input_bytes = 0, output_bytes = 0;
    bool cold = false;  // no cache may hold the inputs

    void lay() {
        const int device = Device::there ? kOnDevice : 0;
        for (const auto& item : items) {
            for (const auto& array : item.arrays) {
                inputs.push_back({kInput + device, input_bytes, array.size()});
                input_bytes = aligned(input_bytes + array.size());
            }
            for (const std::size_t size : item.outputs) {
                outputs.push_back({kOutput + device, output_bytes, size});
                output_bytes = aligned(output_bytes + size);
            }
        }
    }
    // For the worker: per item its params, inputs and outputs; see launcher.cu.
    std::string message() const {
        std::string out;
        put(out, std::uint32_t(items.size()));
        auto in = inputs.begin();
        for (const auto& item : items) {
            put(out, std::uint32_t(sizeof item.params));
            put(out, item.params);
            put(out, std::uint16_t(item.arrays.size()));
            for (std::size_t i = 0; i < item.arrays.size(); i++, ++in) {
                put(out, std::uint64_t(in->start));
                put(out, std::uint64_t(in->bytes));
            }
            put(out, std::uint16_t(item.outputs.size()));
            for (const std::size_t size : item.outputs) put(out, std::uint64_t(size));
        }
        if (out.size() > kMaxMessage - 64) throw TaskFault("an input of more arrays, or with longer Params, than a message holds");
        return out;
    }
};

constexpr int kReady = 0, kReleased = 16;  // words of the page that kbrun and the judge share; after the last, when that was

class Judge {
  public:
    explicit Judge(int fd) : link_(fd) {}

    void serve() {
        std::string raw;
        while (link_.receive(raw, files_)) {
            std::string answer;
            try {
                JsonReader reader(raw);
                const Json order = reader.value();
                answer = obey(order);
            } catch (const TaskFault& error) {
                answer = raised("Error", error.what());
            } catch (const NoDevice& error) {
                answer = "U" + texts({error.what()});
            } catch (const std::exception& error) {
                answer = "!" + texts({error.what()});
            }
            std::fflush(nullptr);
            link_.send(answer);
        }
    }

  private:
    std::string obey(const Json& order) {
        const std::string& op = order["op"].text;
        if (op == "load") return "L" + texts({""});
        if (op == "make") return make(order);
        if (op == "arena") return arena(order);
        if (op == "fill") return timed(fill(master(order["id"])));
        if (op == "drop") return drop(order["id"]);
        if (op == "check") return check(order);
        if (op == "selftest") return "S" + texts({"1", ""});  // no reference computes answers here
        if (op == "page") return page();
        if (op == "device") return device(order);
        if (op == "wipe") return wipe();
        if (op == "write") return write(order);
        if (op == "read") return read(order);
        if (op == "watch") return watch(order);
        if (op == "stop") return "S";
        throw std::runtime_error("an unknown order");
    }

    Master& master(const Json& id) {
        for (auto& entry : masters_)
            if (entry.first == id.number()) return entry.second;
        throw std::runtime_error("an input that is not there");
    }

    std::string make(const Json& order) {
        Master made;
        for (const Json& arguments : order["batch"].values) {
            Case::Arguments list;
            for (const Json& pair : arguments.values) list.emplace_back(pair.values.at(0).text, pair.values.at(1).text);
            made.cases.emplace_back(std::move(list));
            try {
                made.items.push_back(generate_input(made.cases.back()));
            } catch (const std::exception& error) {
                throw TaskFault(error.what());
            }
        }
        made.lay();
        const std::string& inputs = order["inputs"].text;
        made.cold = inputs == "cold" || (inputs.empty() && Device::there);
        // An arena for outputs is made as large as the inputs at first.
        const std::uint64_t size = std::max({made.input_bytes, made.output_bytes, std::uint64_t(1)});
        std::string answer = "M";
        put(answer, std::uint64_t(Device::there ? 0 : size));
        put(answer, std::uint64_t(Device::there ? size : 0));
        answer += made.message();
        masters_.emplace_back(order["id"].number(), std::move(made));
        return answer;
    }

    std::string arena(const Json& order) {
        Arena& arena = arenas_[order["index"].number() & 1];
        arena = Arena(files_.at(0), order["size"].number());
        arena.touch();
        return "A";
    }

    // Copies an input into the arenas, and with a sequence number releases the worker
    // at once. Returns how long that took, in nanoseconds: work that the device does
    // for others meanwhile makes it longer.
    std::uint64_t fill(const Master& m, const std::uint32_t* sequence = nullptr) {
        const std::uint64_t begun = nanoseconds();
        auto piece = m.inputs.begin();
        for (const auto& item : m.items)
            for (const auto& array : item.arrays) copy_in(*piece++, array);
        // 0xff bytes are NaN: what the kernel leaves out is wrong, always. Room for
        // all outputs may be still to come.
        for (const Piece& out : m.outputs) {
            if (!holds(out)) break;
            if (Device::there)
                device_.fill(on_device_[out.arena & 1].at + out.start, 0xff, out.bytes);
            else
                std::memset(arenas_[out.arena].at(out.start), 0xff, out.bytes);
        }
        if (m.cold) device_.flush();
        device_.synchronize();
        if (sequence) {
            // kbrun's clock starts now
            const std::uint64_t at = nanoseconds();
            set_word(shared_, kReleased + 1, std::uint32_t(at >> 32));
            set_word(shared_, kReleased + 2, std::uint32_t(at));
            set_word(shared_, kReleased, *sequence);
            set_word(page_, kRelease, *sequence);
        }
        return nanoseconds() - begun;
    }
    static std::string timed(std::uint64_t took) {
        std::string answer = "F";
        put(answer, took);
        return answer;
    }

    bool holds(const Piece& p) const {
        return Device::there ? p.start + p.bytes <= on_device_[p.arena & 1].size : arenas_[p.arena].holds(p.start, p.bytes);
    }
    void copy_in(const Piece& to, const Array& from) {
        if (!holds(to)) throw std::runtime_error("an input that does not fit into its memory");
        if (from.size() == 0) return;
        if (Device::there)
            device_.copy_in(on_device_[to.arena & 1].at + to.start, from.data(), from.size());
        else
            std::memcpy(arenas_[to.arena].at(to.start), from.data(), from.size());
    }

    std::string drop(const Json& which) {
        const auto id = which.number();
        masters_.erase(std::remove_if(masters_.begin(), masters_.end(), [&](const auto& entry) { return entry.first == id; }), masters_.end());
        return "D";
    }

    // Copies the outputs, compares the places that were read when they were called
    // done, and has the reference check the copies.
    std::string check(const Json& order) {
        const Master m = std::move(master(order["id"]));
        drop(order["id"]);
        std::vector<Piece> claimed;
        for (const Json& s : order["storages"].values)
            claimed.push_back({int(s.values.at(0).number()), s.values.at(1).number(), s.values.at(2).number()});
        if (claimed != m.outputs) return "C" + texts({"0", "0", "the outputs are not where they belong", ""});
        std::vector<Array> copies;
        for (const Piece& out : m.outputs) {
            if (!holds(out)) throw std::runtime_error("an output outside of its memory");
            copies.push_back(Array::of_size(out.bytes));
            if (out.bytes == 0) continue;
            if (Device::there)
                device_.copy_out(copies.back().data(), on_device_[out.arena & 1].at + out.start, out.bytes);
            else
                std::memcpy(copies.back().data(), arenas_[out.arena].at(out.start), out.bytes);
        }
        const std::size_t late = changed(order["places"], m.outputs, copies);
        if (late || order["check"].text != "true") return "C" + texts({"1", std::to_string(late), "", ""});
        const std::size_t item = order["item"].is_null ? 0 : order["item"].number();
        std::size_t first = 0;
        for (std::size_t i = 0; i < item; i++) first += m.items.at(i).outputs.size();
        const auto begin = copies.begin() + std::ptrdiff_t(first);
        const std::vector<Array> output(begin, begin + std::ptrdiff_t(m.items.at(item).outputs.size()));
        try {
            const std::string wrong = check_implementation(m.cases[item], m.items[item], output);
            return "C" + texts({wrong.empty() ? "1" : "0", "0", wrong, ""});
        } catch (const std::exception& error) {
            return "C" + texts({"0", "0", error.what(), "raised"});
        }
    }

    // How many places have other bytes in the copies than were seen.
    static std::size_t changed(const Json& places, const std::vector<Piece>& outputs, const std::vector<Array>& copies) {
        std::size_t late = 0;
        for (const Json& place : places.values) {
            const int arena = int(place.values.at(0).number());
            const std::uint64_t at = place.values.at(1).number();
            const std::string seen = from_hex(place.values.at(2).text);
            for (std::size_t i = 0; i < outputs.size(); i++) {
                const Piece& out = outputs[i];
                if (out.arena != arena || at < out.start || at + seen.size() > out.start + out.bytes) continue;
                late += std::memcmp(copies[i].data() + (at - out.start), seen.data(), seen.size()) != 0;
                break;
            }
        }
        return late;
    }

    static std::string from_hex(const std::string& text) {
        std::string out;
        for (std::size_t i = 0; i + 1 < text.size(); i += 2) out += char(std::stoi(text.substr(i, 2), nullptr, 16));
        return out;
    }

    // The page with the worker's flags, and one that the worker does not have.
    std::string page() {
        page_ = Arena(files_.at(0), kPage);
        shared_ = Arena(files_.at(1), kPage);
        return "P";
    }

    // Makes an arena on the device, and says what another process opens it with.
    // It is never given back: who has it open could read what came there next.
    std::string device(const Json& order) {
        try {
            const std::size_t size = order["size"].number();
            void* memory = device_.allocate(size, files_);
            const std::string shared = texts(device_.share(memory));
            on_device_[order["index"].number() & 1] = {static_cast<unsigned char*>(memory), size};
            return "A" + shared;
        } catch (const std::exception& error) {
            throw NoDevice(error.what());
        }
    }

    std::string wipe() {
        for (const auto& memory : on_device_)
            if (memory.at) device_.fill(memory.at, 0, memory.size);
        device_.synchronize();
        return "W";
    }

    std::string write(const Json& order) {
        const std::string bytes = from_hex(order["bytes"].text);
        device_.copy_in(on_device_[order["index"].number() & 1].at + order["at"].number(), bytes.data(), bytes.size());
        device_.synchronize();
        return "W";
    }

    std::string read(const Json& order) {
        std::string bytes(order["count"].number(), '\0');
        device_.copy_out(&bytes[0], on_device_[order["index"].number() & 1].at + order["at"].number(), bytes.size());
        return "R" + bytes;
    }

    // Waits for the worker's flag and reads places of the outputs on the device at
    // once, as kbrun does it for the others. Says so before it waits; stops waiting
    // when it is told anything. With an input it fills the arenas and releases
    // the worker before that, when kbrun is ready.
    std::string watch(const Json& order) {
        Places places;
        for (const Json& place : order["places"].values) {
            if (int(place.values.at(0).number()) != kOnDevice + kOutput) throw std::runtime_error("a place outside of the outputs");
            places.emplace_back(place.values.at(1).number(), place.values.at(2).number());
        }
        unsigned char* const memory = on_device_[kOutput].at;
        device_.gather(memory, places);  // so that the device has the program for it
        device_.synchronize();
        const std::uint32_t sequence = std::uint32_t(order["sequence"].number());
        const double expect = std::strtod(order["expect"].text.c_str(), nullptr);
        const bool own_core = sysconf(_SC_NPROCESSORS_ONLN) > 2;
        link_.send("B");
        std::uint64_t filled = 0;
        if (!order["fill"].is_null) {
            while (word(shared_, kReady) != sequence)
                if (link_.waits()) return "N";
            filled = fill(master(order["fill"]), &sequence);
        }
        const double begun = now();
        if (expect > 0.001 && link_.waits(int(expect * 800))) return "N";
        const double spin = std::min(std::max(0.002, 2 * expect), 1.0);
        while (word(page_, kDone) != sequence) {
            if (own_core && now() - begun < spin) continue;
            usleep(50);
            if (word(page_, kDone) != sequence && link_.waits()) return "N";
        }
        std::string answer = "G";
        put(answer, filled);
        return answer + device_.gather(memory, places);
    }

    static std::uint64_t nanoseconds() {
        timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return std::uint64_t(t.tv_sec) * 1'000'000'000 + std::uint64_t(t.tv_nsec);
    }
    static double now() { return 1e-9 * double(nanoseconds()); }

    struct Memory {
        unsigned char* at = nullptr;
        std::size_t size = 0;
    };

    Link link_;
    std::vector<int> files_;
    std::vector<std::pair<std::uint64_t, Master>> masters_;
    Arena arenas_[2], page_, shared_;
    Memory on_device_[2];
    Device device_;
};

}  // namespace

int main() {
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);  // nobody reads its memory
    Judge(3).serve();
}
