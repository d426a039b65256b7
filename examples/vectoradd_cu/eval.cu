// Judges a kernel: ./eval.out test|benchmark|leaderboard CASES
//
// Two processes. start(), below, runs before main and before what the submission
// initializes at start-up in the ordinary way. It forks: the parent becomes the
// judge, which makes the inputs, checks the outputs and reports, and never
// returns; the child goes on to main as the worker, which runs the submission
// and knows neither the report's pipe nor the seed. What the worker says is
// never believed: outputs are checked against inputs that the judge kept,
// timings are held against the judge's clock.
//
// That does not keep a submission out of the judge that means to get in. Both
// are one program, and one address space until the fork. Nothing of the harness
// is a symbol that could be replaced, but the C and C++ libraries are, with what
// the compiler makes of their templates; and a constructor of priority 100 or
// less (a warning, no error) or an entry in .preinit_array runs before start().
// Only a build in two programs would end that; Kernelbot's contract for cu
// tasks has one.
//
// What the caller provides, in the format of Kernelbot's evaluator: CASES, one
// case per line; POPCORN_FD, number of an open pipe for the report; optionally
// POPCORN_SEED, a secret that is mixed into every seed.
//
// Exit status: 0 all right, 112 some case failed, 113 CASES cannot be used,
// 111 POPCORN_FD cannot be used, 110 no usable device, 2 wrong usage.

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cases.h"
#include "reference.cuh"
#include "worker.h"

namespace {

constexpr int kOk = 0, kUsage = 2, kCudaFail = 110, kPipeFailed = 111, kValidateFail = 112, kTestSpec = 113;

constexpr double kEchoBudget = 0.2;  // seconds of sending a case's data there and back
constexpr double kFirstCallLimit = 60, kCallLimit = 10;  // seconds; the first starts the device
constexpr double kBenchmarkBudget = 0.3, kLeaderboardBudget = 0.6;  // seconds of repeats of one case
constexpr double kTargetError = 0.001;  // stop repeating when err/mean is below
constexpr std::size_t kMinRuns = 3, kMaxRuns = 1000;
// Repeats, and seconds beyond the budget, before a worker is called a liar.
constexpr std::size_t kDoubtRuns = 10;
constexpr double kDoubt = 2;
// What the two clocks may differ by, beside the data's way between the
// processes: a millisecond, and 1 ns per byte for the way to the device and back,
// which cannot be measured before code of the submission runs.
constexpr std::int64_t kSlackNs = 1000000, kSlackNsPerByte = 1;
constexpr std::int64_t kMinKernelNs = 1000;  // the least that is counted; the clock knows no less
constexpr std::size_t kMaxText = 500;  // characters in one value of the report

// The submission failed this case; the text goes into the report.
struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};
// The worker died, hung or talks nonsense: no further call is possible.
struct Gone : Fault {
    using Fault::Fault;
};
// The machine has no device to work with.
struct NoDevice : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The report: lines "key: value" on a descriptor that is ours alone.
class Report {
  public:
    explicit Report(int fd) : fd_(fd) {}

    // Text of our own or of the submission's: cleaned and cut.
    void put(const std::string& key, const std::string& value) {
        std::string text = value.substr(0, kMaxText);
        for (char& c : text)
            if ((unsigned char)c < ' ' || (unsigned char)c > '~') c = ' ';
        echo(key, text);
    }
    // A case as it was given: the runner compares it.
    void echo(const std::string& key, const std::string& spec) {
        const std::string line = key + ": " + spec + '\n';
        for (std::size_t at = 0; at < line.size();) {
            const ssize_t n = write(fd_, line.data() + at, line.size() - at);
            if (n < 0 && errno != EINTR) _exit(kPipeFailed);
            if (n > 0) at += std::size_t(n);
        }
    }
    void put(const std::string& key, double value) {
        char text[64];
        std::snprintf(text, sizeof text, "%.3f", value);
        put(key, std::string(text));
    }

  private:
    int fd_;
};

struct Timing {
    std::int64_t kernel_ns, wall_ns, bytes;  // what the worker claims, what the judge saw, data moved

    std::int64_t gap_ns() const { return wall_ns - kernel_ns; }

    // Nanoseconds that count: the claim where it is no more than the allowance
    // below the judge's clock, else that clock less the data's way.
    std::int64_t figure(std::int64_t overhead_ns) const {
        if (kernel_ns < 0 || gap_ns() < 0) throw lie();
        const bool agree = gap_ns() <= overhead_ns + kSlackNs + kSlackNsPerByte * bytes;
        return std::max(kMinKernelNs, agree ? kernel_ns : wall_ns - overhead_ns);
    }
    Fault lie() const {
        return Fault("timing: the worker's clock says " + std::to_string(kernel_ns) + " ns, the judge's " +
                     std::to_string(wall_ns) + " ns");
    }
};

// The judge's side of the worker.
class Client {
  public:
    Client(pid_t pid, int in, int out) : pid_(pid), in_(in), out_(out) {
        fcntl(in_, F_SETFL, O_NONBLOCK);
        fcntl(out_, F_SETFL, O_NONBLOCK);
    }

    // Runs the kernel once on data.
    Timing call(const Data& data, std::vector<float>& output) {
        enter();
        const double limit = first_ ? kFirstCallLimit : kCallLimit;
        first_ = false;
        return ask(Request::kCall, data, output, limit);
    }

    // What the data's way to the worker and back takes. Only before call.
    Timing echo(const Data& data, std::vector<float>& output) {
        return ask(Request::kEcho, data, output, kFirstCallLimit);
    }

    // Lets the worker go on to the submission's code.
    void enter() {
        if (entered_) return;
        entered_ = true;
        const Request request{Request::kEnter, 0};
        deadline_ = now_ns() + std::int64_t(kFirstCallLimit * 1e9);
        put(&request, sizeof request);
    }

    void end() {
        kill(-pid_, SIGKILL);
        kill(pid_, SIGKILL);
        while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR) {
        }
    }

  private:
    Timing ask(Request::Kind kind, const Data& data, std::vector<float>& output, double limit) {
        const std::int64_t start = now_ns();
        deadline_ = start + std::int64_t(limit * 1e9);

        std::vector<std::uint64_t> head{kind, data.size()};
        std::vector<std::size_t> sizes;
        for (const auto& input : data) {
            head.push_back(input.size());
            sizes.push_back(input.size());
        }
        put(head.data(), head.size() * sizeof(std::uint64_t));
        std::size_t bytes = 0;
        for (const auto& input : data) {
            put(input.data(), input.size() * sizeof(float));
            bytes += input.size() * sizeof(float);
        }
        Answer answer;
        get(&answer, sizeof answer);
        if (answer.kind == Answer::kTrouble || answer.kind == Answer::kNoDevice) {
            std::string text(std::min<std::size_t>(answer.size, kMaxText), ' ');
            get(&text[0], text.size());
            if (answer.kind == Answer::kNoDevice) throw NoDevice(text);
            throw Gone(text);  // a CUDA error sticks: no later call works
        }
        output.resize(output_size(sizes));
        if (answer.kind != Answer::kOutput || answer.size != output.size())
            throw Gone("the answer is malformed");
        get(output.data(), output.size() * sizeof(float));
        bytes += output.size() * sizeof(float);
        return {std::int64_t(answer.kernel_ns), now_ns() - start, std::int64_t(bytes)};
    }

    bool alive() {
        if (!ended_ && waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
        return !ended_;
    }
    void put(const void* from, std::size_t size) {
        settle(write_all(out_, from, size, deadline_, [this] { return alive(); }));
    }
    void get(void* to, std::size_t size) {
        settle(read_all(in_, to, size, deadline_, [this] { return alive(); }));
    }
    void settle(Io result) {
        if (result == Io::kDone) return;
        if (result == Io::kLate) throw Gone("no answer in time");
        for (int i = 0; i < 100 && alive(); i++) usleep(10000);
        if (!ended_) throw Gone("the worker process closed its connection");
        if (WIFSIGNALED(status_))
            throw Gone("the worker process was killed by signal " + std::to_string(WTERMSIG(status_)));
        throw Gone("the worker process ended with exit status " + std::to_string(WEXITSTATUS(status_)));
    }

    pid_t pid_;
    int in_, out_, status_ = 0;
    bool entered_ = false, first_ = true, ended_ = false;
    std::int64_t deadline_ = 0;
};

struct Secret {
    bool given = false;
    std::uint64_t value = 0;
};

// Kernelbot's rule, a + (a+b)(a+b+1)/2, here modulo 2^64.
std::uint64_t mix_seed(std::uint64_t a, std::uint64_t b) {
    const std::uint64_t s = a + b;
    return a + (s % 2 ? s * ((s + 1) / 2) : (s / 2) * (s + 1));
}

std::uint64_t fresh_seed() {
    std::uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != ssize_t(sizeof seed)) std::abort();
    return seed;
}

struct Prepared {
    std::string spec;
    Shape shape;
    std::uint64_t seed;
    std::int64_t overhead_ns;  // the data's way to the worker and back
};

class Judge {
  public:
    Judge(Report report, Client& client, std::vector<Prepared> cases, bool secret)
        : report_(report), client_(client), cases_(std::move(cases)), secret_(secret) {}

    // Every case as it is, then with inputs that a submission cannot have made
    // beforehand from the case's seed, which is public or may leak.
    bool test() {
        return every("test", [&](const Prepared& c, const std::string&) {
            attempt(c.shape, c.seed);
            try {
                attempt(c.shape, fresh_seed());
            } catch (const Gone&) {
                throw;
            } catch (const Fault& fault) {
                throw Fault(std::string(fault.what()) + " (with a fresh seed)");
            }
        });
    }

    bool benchmark(double budget) {
        for (auto& c : cases_) c.overhead_ns = overhead(c.shape);
        return every("benchmark", [&](const Prepared& c, const std::string& key) { measure(c, key, budget); });
    }

  private:
    // Judges every case and reports it under "kind.N."; whether all are right.
    template <class One>
    bool every(const std::string& kind, One one) {
        report_.put(kind + "-count", std::to_string(cases_.size()));
        bool right = true;
        std::string lost;
        for (std::size_t i = 0; i < cases_.size(); i++) {
            const std::string key = kind + "." + std::to_string(i);
            report_.echo(key + ".spec", cases_[i].spec);
            std::string error;
            try {
                if (!lost.empty()) throw Fault("not run: the worker was lost in " + lost);
                one(cases_[i], key);
            } catch (const Gone& fault) {
                lost = kind + " " + std::to_string(i);
                error = fault.what();
            } catch (const Fault& fault) {
                error = fault.what();
            }
            report_.put(key + ".status", error.empty() ? std::string("pass") : std::string("fail"));
            if (!error.empty()) report_.put(key + ".error", error);
            right = right && error.empty();
        }
        return right;
    }

    // The least of a few, as a busy machine makes the way longer; each with
    // inputs just made, as repeats have them: they lie in no cache yet.
    std::int64_t overhead(const Shape& shape) {
        const std::int64_t end = now_ns() + std::int64_t(kEchoBudget * 1e9);
        std::int64_t least = INT64_MAX;
        for (int n = 0; n < 5 || (n < 20 && now_ns() < end); n++)
            least = std::min(least, client_.echo(generate_input(shape, fresh_seed()), output_).gap_ns());
        return least;
    }

    // One call on fresh inputs, its output checked.
    Timing attempt(const Shape& shape, std::uint64_t seed) {
        const Data data = generate_input(shape, seed);
        const Timing timing = client_.call(data, output_);
        const Problem problem = check(shape, data, output_);
        if (problem.where.empty()) return timing;
        throw Fault(problem.where + (secret_ ? " is wrong" : ": " + problem.values));
    }

    // Every repeat counts, so that no worker can choose among them; whatever is
    // claimed, a repeat counts at most the allowance less than it took. Claims
    // of less than half of what counts, in more than half of the repeats, are
    // lies: a machine that is busy with other things may delay some, and gets a
    // little longer.
    void measure(const Prepared& c, const std::string& key, double budget) {
        attempt(c.shape, c.seed);  // warm-up: not counted
        std::size_t runs = 0, wild = 0;
        double first = 0, sum = 0, squares = 0, mean = 0, std = 0, err = 0, best = 0, worst = 0;
        const std::int64_t end = now_ns() + std::int64_t(budget * 1e9);
        const std::int64_t doubt = end + std::int64_t(kDoubt * 1e9);
        for (;;) {
            const Timing t = attempt(c.shape, fresh_seed());
            const std::int64_t counted = t.figure(c.overhead_ns);
            if (std::max(t.kernel_ns, kMinKernelNs) < counted / 2) wild++;
            const double n = double(++runs), x = double(counted);
            if (runs == 1) first = x;
            sum += x - first;  // shifted, so that the squares keep their digits
            squares += (x - first) * (x - first);
            best = n == 1 ? x : std::min(best, x);
            worst = std::max(worst, x);
            if (runs < kMinRuns) continue;
            mean = first + sum / n;
            std = std::sqrt(std::max(0.0, squares - sum * sum / n) / (n - 1));
            err = std / std::sqrt(n);
            const bool full = runs >= kMaxRuns;
            if (2 * wild > runs) {
                if (full || (runs >= kDoubtRuns && now_ns() > doubt)) throw t.lie();
            } else if (full || err < kTargetError * mean || now_ns() > end) {
                break;
            }
        }
        report_.put(key + ".runs", std::to_string(runs));
        report_.put(key + ".mean", mean);
        report_.put(key + ".std", std);
        report_.put(key + ".err", err);
        report_.put(key + ".best", best);
        report_.put(key + ".worst", worst);
    }

    Report report_;
    Client& client_;
    std::vector<Prepared> cases_;
    std::vector<float> output_;
    bool secret_;  // texts name no values
};

int fail(int status, const std::string& text) {
    std::fprintf(stderr, "eval: error: %s\n", text.c_str());
    return status;
}

// Reads a whole number; whether that is what text is.
template <class T>
bool parse(const char* text, T& value) {
    if (!text || !*text) return false;
    char* end = nullptr;
    errno = 0;
    value = T(std::strtoll(text, &end, 10));
    return !errno && !*end;
}

std::vector<Prepared> prepare(const char* path, const Secret& secret) {
    std::vector<Prepared> prepared;
    for (const Case& c : read_cases(path)) {
        try {
            const auto seed = std::uint64_t(integer(c.args, "seed", 0, INT64_MAX));
            prepared.push_back({c.spec, read_shape(c.args), secret.given ? mix_seed(seed, secret.value) : seed, 0});
        } catch (const BadCases& err) {
            throw BadCases("'" + c.spec + "': " + err.what());
        }
    }
    return prepared;
}

int judge(int argc, char** argv, int report_fd, Client& client) {
    const std::string mode = argc == 3 ? argv[1] : "";
    if (mode != "test" && mode != "benchmark" && mode != "leaderboard")
        return fail(kUsage, "usage: eval.out test|benchmark|leaderboard CASES (no profile)");
    if (report_fd < 0) return fail(kPipeFailed, "POPCORN_FD: want the number of an open file descriptor");
    Secret secret;
    if (const char* seed = std::getenv("POPCORN_SEED")) {
        if (!parse(seed, secret.value)) return fail(kTestSpec, "POPCORN_SEED: want an integer");
        secret.given = true;
    }
    try {
        Report report(report_fd);
        auto cases = prepare(argv[2], secret);
        if (cases.empty() && mode != "test") throw BadCases("no case to measure");
        Judge judge(report, client, std::move(cases), secret.given);
        const bool right = mode == "test" ? judge.test()
                           : judge.benchmark(mode == "benchmark" ? kBenchmarkBudget : kLeaderboardBudget);
        report.put("check", right ? std::string("pass") : std::string("fail"));
        return right ? kOk : kValidateFail;
    } catch (const BadCases& err) {
        return fail(kTestSpec, std::string(argv[2]) + ": " + err.what());
    } catch (const NoDevice& err) {
        return fail(kCudaFail, err.what());
    }
}

int worker_in = -1, worker_out = -1;

// See the top of this file. 101 is the earliest priority that programs are meant
// to use, and among equals the first source on the command line comes first.
__attribute__((constructor(101))) void start(int argc, char** argv, char** environment) {
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    signal(SIGPIPE, SIG_IGN);
    int report_fd = -1;
    if (!parse(std::getenv("POPCORN_FD"), report_fd) || fcntl(report_fd, F_SETFD, FD_CLOEXEC) < 0) report_fd = -1;
    int down[2], up[2];
    if (pipe2(down, O_CLOEXEC) || pipe2(up, O_CLOEXEC)) _exit(fail(1, "pipe2: " + std::string(std::strerror(errno))));
    const pid_t pid = fork();
    if (pid < 0) _exit(fail(1, "fork: " + std::string(std::strerror(errno))));
    if (pid == 0) {
        close(down[1]);
        close(up[0]);
        worker_in = down[0];
        worker_out = up[1];
        become_worker(report_fd, environment);
        Worker(worker_in, worker_out).work();  // echoes, until the judge lets it go on
        return;  // to the submission's start-up code, and main
    }
    close(down[0]);
    close(up[1]);
    fcntl(down[1], F_SETPIPE_SZ, kPipeSize);  // where that is refused, 64 KiB pieces do
    fcntl(up[0], F_SETPIPE_SZ, kPipeSize);
    Client client(pid, up[0], down[1]);
    const int status = judge(argc, argv, report_fd, client);
    client.end();
    _exit(status);
}

}  // namespace

int main() { return Worker(worker_in, worker_out).work(); }
