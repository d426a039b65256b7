// Makes inputs for vectoradd and checks outputs. Runs in the judge only, on
// the host.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>

#include "cases.h"
#include "task.h"

namespace {  // no symbols: see cases.h

constexpr double kTolerance = 1e-6;  // relative to the range of the summands

struct Shape {
    std::size_t n;
    double range;  // the summands lie in [-range, range)
};

// Reads what a case says beside its seed; throws BadCases.
inline Shape read_shape(const Args& args) {
    return {std::size_t(integer(args, "n", 1, 1 << 28)), double(integer(args, "range", 1, 1 << 20))};
}

inline Data generate_input(const Shape& shape, std::uint64_t seed) {
    std::mt19937_64 draw(seed);
    Data data(2, std::vector<float>(shape.n));
    for (auto& vector : data)
        for (auto& x : vector) x = float((double(draw() >> 11) * 0x1p-52 - 1) * shape.range);
    return data;
}

// What is wrong, in two halves: values may betray the secret seed, and are left
// out of the report where there is one.
struct Problem {
    std::string where, values;  // where is empty when nothing is wrong
};

inline Problem check(const Shape& shape, const Data& data, const std::vector<float>& output) {
    for (std::size_t i = 0; i < shape.n; i++) {
        const double want = double(data[0][i]) + double(data[1][i]);
        if (!(std::fabs(want - output[i]) <= kTolerance * shape.range)) {  // so written, NaN is wrong too
            char where[80], values[80];
            std::snprintf(where, sizeof where, "element %zu of %zu", i, shape.n);
            std::snprintf(values, sizeof values, "got %.9g, want %.9g", double(output[i]), want);
            return {where, values};
        }
    }
    return {};
}

}  // namespace
