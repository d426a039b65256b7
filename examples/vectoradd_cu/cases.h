// Reads the cases file: one case per line, "name: value; name: value", with
// any number of arguments.
#pragma once

#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// Without a name, here and in the other files of the harness: nothing in it is
// a symbol that the linker could replace by one of the submission's.
namespace {

struct BadCases : std::runtime_error {
    using std::runtime_error::runtime_error;
};

using Args = std::vector<std::pair<std::string, std::string>>;  // in the order of the line

struct Case {
    std::string spec;  // the line as it came, for the report
    Args args;
};

inline std::string trim(const std::string& text) {
    const char* blank = " \t\r\n";
    const auto first = text.find_first_not_of(blank);
    return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(blank) - first + 1);
}

inline bool is_name(const std::string& text) {
    if (text.empty() || std::isdigit((unsigned char)text[0])) return false;
    for (unsigned char c : text)
        if (!std::isalnum(c) && c != '_') return false;
    return true;
}

// Where the argument that starts at `from` ends: the next semicolon outside
// brackets, or the end of the line.
inline std::size_t argument_end(const std::string& line, std::size_t from) {
    int depth = 0;
    for (std::size_t i = from; i < line.size(); i++) {
        if (line[i] == '[' || line[i] == '(') depth++;
        if (line[i] == ']' || line[i] == ')') depth--;
        if (line[i] == ';' && depth <= 0) return i;
    }
    return line.size();
}

inline Args parse_case(const std::string& line) {
    Args args;
    for (std::size_t from = 0; from <= line.size();) {
        const std::size_t end = argument_end(line, from);
        const std::string part = trim(line.substr(from, end - from));
        const auto colon = part.find(':');
        if (colon == std::string::npos) throw BadCases("got '" + part + "', want name: value");
        const std::string name = trim(part.substr(0, colon)), value = trim(part.substr(colon + 1));
        if (!is_name(name) || value.empty()) throw BadCases("got '" + part + "', want name: value");
        for (const auto& other : args)
            if (other.first == name) throw BadCases("'" + name + "' is given twice");
        args.emplace_back(name, value);
        from = end + 1;
    }
    return args;
}

// The integer called name; BadCases when it is missing or outside [low, high].
inline std::int64_t integer(const Args& args, const std::string& name, std::int64_t low, std::int64_t high) {
    for (const auto& arg : args) {
        if (arg.first != name) continue;
        char* end = nullptr;
        errno = 0;
        const long long value = std::strtoll(arg.second.c_str(), &end, 10);
        if (errno || *end || value < low || value > high)
            throw BadCases(name + ": got '" + arg.second + "', want an integer from " + std::to_string(low) +
                           " to " + std::to_string(high));
        return value;
    }
    throw BadCases(name + " is missing");
}

inline std::vector<Case> read_cases(const char* path) {
    std::FILE* file = std::fopen(path, "re");
    if (!file) throw BadCases("cannot be opened");
    std::string text;
    char block[4096];
    for (std::size_t got; (got = std::fread(block, 1, sizeof block, file)) > 0;) text.append(block, got);
    const bool broken = std::ferror(file);
    std::fclose(file);
    if (broken) throw BadCases("cannot be read");

    std::vector<Case> cases;
    int number = 0;
    for (std::size_t from = 0; from < text.size(); number++) {
        const auto end = std::min(text.find('\n', from), text.size());
        const std::string line = trim(text.substr(from, end - from));
        from = end + 1;
        if (line.empty()) continue;
        try {
            cases.push_back({line, parse_case(line)});
        } catch (const BadCases& err) {
            throw BadCases("line " + std::to_string(number + 1) + ": " + err.what());
        }
    }
    return cases;
}

}  // namespace
