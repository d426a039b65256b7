// What the reference of a C++ task is written with: a case, an input, an output.
// kbrun's isolated harness puts this file beside reference.cuh; the submission
// never sees either. Needs C++17.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace kbrun {

// One case of task.yml. Its methods throw when an argument is missing or is not
// what is wanted; the task is at fault then.
class Case {
  public:
    using Arguments = std::vector<std::pair<std::string, std::string>>;  // name and value, in order

    explicit Case(Arguments arguments) : arguments_(std::move(arguments)) {}

    // The argument as it was written, a text without its quotes.
    const std::string& text(const std::string& name) const {
        for (const auto& argument : arguments_)
            if (argument.first == name) return argument.second;
        throw std::runtime_error(name + " is missing");
    }

    std::int64_t integer(const std::string& name, std::int64_t low, std::int64_t high) const {
        const std::string& word = text(name);
        char* end = nullptr;
        errno = 0;
        const long long value = std::strtoll(word.c_str(), &end, 10);
        if (errno || end == word.c_str() || *end || value < low || value > high)
            throw std::runtime_error(name + ": got '" + word + "', want an integer from " + std::to_string(low) + " to " +
                                     std::to_string(high));
        return value;
    }

    double number(const std::string& name) const {
        const std::string& word = text(name);
        char* end = nullptr;
        const double value = std::strtod(word.c_str(), &end);
        if (end == word.c_str() || *end) throw std::runtime_error(name + ": got '" + word + "', want a number");
        return value;
    }

    // The argument called seed, modulo 2^64: a secret one that is mixed in makes
    // it longer than any integer. Every call has another one.
    std::uint64_t seed() const {
        const std::string& word = text("seed");
        const bool negative = word[0] == '-';
        std::uint64_t value = 0;
        for (std::size_t i = negative; i < word.size(); i++) {
            if (word[i] < '0' || word[i] > '9') throw std::runtime_error("seed: got '" + word + "', want an integer");
            value = 10 * value + std::uint64_t(word[i] - '0');
        }
        return negative ? 0 - value : value;
    }

  private:
    Arguments arguments_;
};

// Elements of one type, one after the other, on the host.
class Array {
  public:
    template <class T>
    explicit Array(const std::vector<T>& elements) : bytes_(elements.size() * sizeof(T)) {
        static_assert(std::is_trivially_copyable<T>::value, "elements are copied byte by byte");
        if (!bytes_.empty()) std::memcpy(bytes_.data(), elements.data(), bytes_.size());
    }
    static Array of_size(std::size_t bytes) {
        Array array;
        array.bytes_.resize(bytes);
        return array;
    }

    template <class T>
    const T* as() const {
        return reinterpret_cast<const T*>(bytes_.data());
    }
    template <class T>
    std::size_t count() const {
        return bytes_.size() / sizeof(T);
    }
    unsigned char* data() { return bytes_.data(); }
    const unsigned char* data() const { return bytes_.data(); }
    std::size_t size() const { return bytes_.size(); }  // in bytes

  private:
    Array() = default;
    std::vector<unsigned char> bytes_;
};

// What one call of the kernel gets. Params is task.h's.
template <class Params>
struct Input {
    Params params;
    std::vector<Array> arrays;         // copied to the device, in this order
    std::vector<std::size_t> outputs;  // sizes in bytes of what the kernel writes

    template <class T>
    void add(const std::vector<T>& elements) {
        arrays.emplace_back(elements);
    }
    template <class T>
    void expect(std::size_t count) {
        outputs.push_back(count * sizeof(T));
    }
};

}  // namespace kbrun
